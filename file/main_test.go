package file

import (
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("FILE_TEST_HOLD"); path != "" {
		os.Exit(holdForTest(path))
	}
	if path := os.Getenv("FILE_TEST_FILL"); path != "" {
		os.Exit(fillForTest(path))
	}
	goleak.VerifyTestMain(m)
}

// holdForTest opens path for rotation, prints "open" and waits for the end of stdin. It returns the
// exit code of the process.
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

// lines has 64 KiB: lines of 128 bytes.
var lines = strings.Repeat(strings.Repeat("x", 127)+"\n", 64<<10/128)

// fillForTest writes to path until space is reserved after the end of the file, prints "full" and
// waits for the end of stdin. It returns the exit code of the process.
func fillForTest(path string) int {
	f, err := Open(path, nil)
	if err != nil {
		println(err.Error())
		return 1
	}
	for range reserveAfter/len(lines) + 1 {
		f.Write([]byte(lines))
	}
	os.Stdout.WriteString("full\n")
	os.Stdin.Read(make([]byte, 1))
	return 0
}
