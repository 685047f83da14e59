package state

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand"
	"syscall"
	"testing"

	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/internal/vfs"
)

// After a power loss or a failure of the disk, the file contains the text of the last successful
// Save, or of a later Save. The directory still exists.
func TestSavedTextSurvivesPowerLoss(t *testing.T) {
	failed := 0
	for seed := range testkit.Walks(t, 300) {
		r := rand.New(rand.NewSource(int64(seed)))
		mem := vfs.NewMem()
		mem.Ordered = true // renames are atomic
		if err := mem.MkdirAll("/", 0o700); err != nil {
			t.Fatal(err)
		}
		safe, next := 0, 1 // number of the last saved text, and number of the next text
		for range 1 + r.Intn(4) {
			left, failing := 1+r.Intn(40), r.Intn(2) == 0 // number of calls before the power loss, and whether calls may fail
			var afterLoss *vfs.Mem                        // the disk after the power loss; nil if power was not lost
			disk := vfs.NewFaulty(mem, func(c vfs.Call) (int, error) {
				if left--; left == 0 {
					afterLoss = mem.CrashClone(r, []float64{0, 0.3, 0.5, 0.9, 1}[r.Intn(5)])
					return 0, vfs.ErrKilled
				}
				if failing && r.Intn(6) == 0 {
					failed++
					return r.Intn(c.Len + 1), syscall.EIO
				}
				return 0, nil
			})
			var d *Dir
			for afterLoss == nil {
				if d == nil {
					d, _ = open(disk, "/a/b", "x")
					continue
				}
				text := fmt.Sprintf("text %d, and %d of its bytes", next, r.Intn(10_000))
				next++
				if d.Save([]byte(text)) == nil {
					safe = next - 1
				}
			}
			mem = afterLoss
			d, err := open(mem, "/a/b", "x")
			if err != nil {
				t.Fatal(err)
			}
			text, err := d.Load()
			if safe == 0 && errors.Is(err, fs.ErrNotExist) {
				continue
			}
			var n, bytes int
			if _, serr := fmt.Sscanf(string(text), "text %d, and %d of its bytes", &n, &bytes); err != nil || serr != nil || n < safe || n >= next {
				t.Fatalf("seed %d: got %q, %v, want text %d or a later one", seed, text, err, safe)
			}
			safe = n
			mem.ReleaseLocks()
		}
	}
	if failed == 0 {
		t.Error("no failure of the disk was simulated")
	}
}
