package file

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("FILE_TEST_HOLD"); path != "" {
		os.Exit(holdForTest(path))
	}
	goleak.VerifyTestMain(m)
}

// holdForTest opens path for rotation, says so, and waits for stdin to end.
func holdForTest(path string) int {
	f, err := Open(path, &Options{RotateBytes: 1 << 20})
	if err != nil {
		println(err.Error())
		return 1
	}
	defer f.Close()
	os.Stdout.WriteString("open\n")
	os.Stdin.Read(make([]byte, 1))
	return 0
}
