package tail

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forebay-log/forebay/internal/testkit"
)

// A directory or file without permission is reported as such, once for each change, and is followed
// when permission is granted.
func TestMissingPermissionIsReported(t *testing.T) {
	for _, c := range []struct{ pattern, denied string }{
		{"a/x.log", "a"},
		{"a/*.log", "a"},
		{"*/x.log", "a"},
		{"*/b/*.log", "a/b"},
		{"a/b/x.log", "a/b/x.log"},
	} {
		dir := t.TempDir()
		if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // TempDir has created it for this user only
			t.Fatal(err)
		}
		log := filepath.Join(dir, "a", "x.log")
		if strings.Contains(c.pattern, "b/") {
			log = filepath.Join(dir, "a", "b", "x.log")
		}
		if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, log, "one\n")
		if err := os.Chmod(log, 0o644); err != nil {
			t.Fatal(err)
		}
		h := newStepper(t, Options{Patterns: []string{filepath.Join(dir, c.pattern)}})
		denied := filepath.Join(dir, c.denied)
		chmod := func(mode os.FileMode) {
			if err := os.Chmod(denied, mode); err != nil {
				t.Fatal(err)
			}
			h.messages = nil
			testkit.Unprivileged(t, func() { h.advance(0); h.advance(0) })
		}
		for range 2 {
			chmod(0)
			if got := strings.Join(h.messages, "\n"); len(h.messages) != 1 || !strings.HasPrefix(got, denied) || !strings.Contains(got, "cannot be read: permission denied; retrying; ") {
				t.Errorf("%s: %q", c.pattern, h.messages)
			}
			if denied == log {
				break
			}
			if err := os.Rename(log, log+"-away"); err != nil {
				t.Fatal(err)
			}
			chmod(0o755) // now the file is missing
			if err := os.Rename(log+"-away", log); err != nil {
				t.Fatal(err)
			}
		}
		chmod(0o755)
		h.want("one\n")
	}
}
