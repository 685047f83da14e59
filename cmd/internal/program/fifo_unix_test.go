//go:build unix

package program

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/forebay-log/forebay/cmd/internal/exit"
)

// If the output is a named pipe without a reader, the program returns an error and does not block.
// If it has a reader, the lines arrive.
func TestPipeToFIFO(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"pipe", "--to", "file:" + path},
		{"receive", "--forward=127.0.0.1:0", "--out", path},
	} {
		p := start(t, args...)
		p.in.Close()
		code, stderr := p.wait()
		if code != exit.ConfigCode {
			t.Errorf("%s: exit code %d", args[0], code)
		}
		wantMatch(t, stderr, `: cannot open ".*/pipe": it is a named pipe without a reader; start the reader first`)
	}
}
