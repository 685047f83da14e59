package diskqueue

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/spool"
)

// On a full file system of the operating system, the spool behaves as in TestNoSpace.
func TestFullDisk(t *testing.T) {
	dir := testkit.Tmpfs(t, "size=256k")
	s, err := Open(filepath.Join(dir, "spool"), &spool.Options{SegmentBytes: 32 << 10})
	if err != nil {
		t.Fatal(err)
	}
	fill := func(from int) int {
		t.Helper()
		for n := from; ; n += 5 {
			if _, err := s.Append(numbered(n, 5, nil, nil)); errors.Is(err, unix.ENOSPC) {
				return n
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	n := fill(0)
	if n < 100 {
		t.Fatalf("full after %d records", n)
	}
	// Delivering half of the records needs no space and frees some.
	settle(t, s, n/10)
	end := fill(n)
	if end < n+50 {
		t.Errorf("no room after %d records were delivered", n/2)
	}
	mustBalance(t, s)
	mustClose(t, s)
	// A spool on a full disk can be opened and delivered.
	if s, err = Open(filepath.Join(dir, "spool"), nil); err != nil {
		t.Fatal(err)
	}
	got := drain(t, s, true)
	if err := consecutive(got, n/10*5); err != nil || got[len(got)-1] != end-1 {
		t.Error(err, len(got))
	}
	mustBalance(t, s)
	mustClose(t, s)
}

// Open of a read-only directory returns an error that names the cause. List works.
func TestReadOnlyDirectory(t *testing.T) {
	dir := testkit.Tmpfs(t, "size=1m")
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, s, 0, 5)
	mustClose(t, s)
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Skipf("SKIPPED: cannot remount read-only: %v", err)
	}
	if _, err := Open(dir, nil); !errors.Is(err, unix.EROFS) || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v", err)
	}
	if _, err := Open(filepath.Join(dir, "new"), nil); !errors.Is(err, unix.EROFS) {
		t.Errorf("got %v", err)
	}
	if l, err := List(dir, true); err != nil || l.Pending != 5 {
		t.Errorf("%+v, %v", l, err)
	}
	if es, err := os.ReadDir(dir); err != nil || len(es) != 3 {
		t.Error(es, err)
	}
}
