package program

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/diskqueue"
)

// The commands spool verify and spool replay report each kind of damage with the name of the file
// and exit code 1. spool replay delivers the readable records.
func TestSpoolDamageIsReported(t *testing.T) {
	const a, b, c = "00000001.seg", "00000002.seg", "00000003.seg"
	flip := func(off int64) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			p, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			p[(off+int64(len(p)))%int64(len(p))] ^= 0x40
			if err := os.WriteFile(path, p, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	size := func(n int64) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			st, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if n < 0 {
				n += st.Size()
			}
			if err := os.Truncate(path, n); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(t *testing.T, path string) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name  string
		file  string
		do    func(*testing.T, string)
		lines string // lines that the destination should receive
	}{
		{"empty, the first", a, size(0), "bc"},
		{"empty, in the middle", b, size(0), "ac"},
		{"empty, the last", c, size(0), "ab"},
		{"header, in the middle", b, flip(9), "ac"},
		{"header, the last", c, flip(9), "ab"},
		{"body, in the middle", b, flip(-1), "ac"},
		{"body, the last", c, flip(-1), "ab"},
		{"cut, the last", c, size(-1), "ab"},
		{"gone, the last", c, remove, "ab"},
		{"sparse", c, size(20 << 30), "abc"},
		{"pipe", c, func(t *testing.T, path string) {
			remove(t, path)
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "ab"},
		{"pipe, one more", "00000004.seg", func(t *testing.T, path string) {
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "abc"},
		{"directory", b, func(t *testing.T, path string) {
			remove(t, path)
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "ac"},
		{"link", b, func(t *testing.T, path string) {
			if err := os.Rename(path, path+".elsewhere"); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(path+".elsewhere", path); err != nil {
				t.Fatal(err)
			}
		}, "ac"},
		{"cursor is a pipe", "cursor", func(t *testing.T, path string) {
			remove(t, path)
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "abc"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			s, err := diskqueue.Open(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i, codec := range []batch.Codec{encode.JSON(nil).Codec(), encode.RawCodec(), encode.JSON(nil).Codec()} {
				b := batch.Batch{Codec: codec}
				b.Append([]byte{"abc"[i], '\n'}, 0, batch.Meta{})
				if _, err := s.Append(&b); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			tt.do(t, filepath.Join(dir, tt.file))
			if tt.file != "cursor" { // the loss of the cursor causes no loss of records
				out, errs, code := runSpool(t, nil, "verify", dir)
				if code != exit.RuntimeCode || !strings.Contains(errs, "damaged") {
					t.Errorf("verify: %d %s%s", code, out, errs)
				}
			}
			out := filepath.Join(dir, "out")
			_, errs, code := runSpool(t, nil, "replay", dir, "--to", "file:"+out)
			got, err := os.ReadFile(out)
			if err != nil || strings.ReplaceAll(string(got), "\n", "") != tt.lines {
				t.Errorf("arrived %q, %v", got, err)
			}
			if code != exit.RuntimeCode || !strings.Contains(errs, tt.file) {
				t.Errorf("replay: %d %s", code, errs)
			}
			// Damage is reported only once, because replay renames the damaged file.
			if _, errs, code := runSpool(t, nil, "replay", dir, "--to", "file:"+out); code != 0 {
				t.Errorf("again: %d %s", code, errs)
			}
		})
	}
}

// After a purge of a spool, verify and replay report neither gaps nor damage.
func TestPurgedSpoolIsIntact(t *testing.T) {
	dir := t.TempDir()
	fillSpool(t, dir)
	if _, errs, code := runSpool(t, nil, "purge", dir, "--yes"); code != 0 {
		t.Fatal(errs)
	}
	if out, errs, code := runSpool(t, nil, "verify", dir); code != 0 {
		t.Errorf("%d %s%s", code, out, errs)
	}
	fillSpool(t, dir)
	if _, errs, code := runSpool(t, nil, "replay", dir, "--to", "file:"+filepath.Join(dir, "out")); code != 0 {
		t.Errorf("%d %s", code, errs)
	}
}
