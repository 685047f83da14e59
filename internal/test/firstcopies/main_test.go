package firstcopies

import (
	"os"
	"testing"
)

// child is what the processes run that are killed; see TestCrash.
var child = func() {}

func TestMain(m *testing.M) {
	child()
	code := m.Run()
	os.RemoveAll(built.dir)
	os.Exit(code)
}
