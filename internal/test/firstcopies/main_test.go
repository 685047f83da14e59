package firstcopies

import (
	"os"
	"testing"
)

// child is the main function of the processes that TestCrash starts from the test binary and kills.
// It returns at once in other processes.
var child = func() {}

func TestMain(m *testing.M) {
	child()
	code := m.Run()
	os.RemoveAll(built.dir)
	os.Exit(code)
}
