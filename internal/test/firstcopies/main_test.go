package firstcopies

import (
	"os"
	"testing"
)

// child is the main function of the processes that TestCrashKeepsOrder starts from the test binary
// and kills. In other processes it returns immediately.
var child = func() {}

func TestMain(m *testing.M) {
	child()
	code := m.Run()
	os.RemoveAll(built.dir)
	os.Exit(code)
}
