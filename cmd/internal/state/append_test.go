package state

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand"
	"testing"

	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/internal/vfs"
)

// After a power loss, the file contains the saved text and everything that was appended before the
// last successful Sync. After an error of Append or Sync, Append returns an error until the next
// Save.
func TestAppendedTextSurvivesPowerLoss(t *testing.T) {
	for seed := range testkit.Walks(t, 200) {
		r := rand.New(rand.NewSource(int64(seed)))
		mem := vfs.NewMem()
		mem.Ordered = true
		if err := mem.MkdirAll("/", 0o700); err != nil {
			t.Fatal(err)
		}
		var afterLoss *vfs.Mem  // the disk after the power loss; nil if power was not lost
		left := 10 + r.Intn(60) // number of calls before the power loss
		disk := vfs.NewFaulty(mem, func(c vfs.Call) (int, error) {
			if left--; left == 0 {
				afterLoss = mem.CrashClone(r, []float64{0, 0.5, 1}[r.Intn(3)])
				return 0, vfs.ErrKilled
			}
			if r.Intn(12) == 0 {
				return r.Intn(c.Len + 1), errors.New("simulated failure")
			}
			return 0, nil
		})
		var d *Dir
		var text, safe []byte // text that was written, and text that must survive
		saved := false
		for n := 0; afterLoss == nil; n++ {
			part := fmt.Appendf(nil, "%d;", n)
			switch {
			case d == nil:
				d, _ = open(disk, "/a", "x")
			case !saved:
				if err := d.Append(part); err == nil {
					t.Fatalf("seed %d: Append before a Save returned no error", seed)
				}
				if saved = d.Save(part) == nil; saved {
					text, safe = part, part
				} else {
					safe = nil // the old or the new text may survive
				}
			case r.Intn(3) == 0:
				if saved = d.Sync() == nil; saved {
					safe = text
				}
			default:
				if saved = d.Append(part) == nil; saved {
					text = append(bytes.Clone(text), part...)
				}
			}
		}
		after, err := open(afterLoss, "/a", "x")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := after.Load(); safe != nil && (err != nil || !bytes.HasPrefix(got, safe)) {
			t.Fatalf("seed %d: got %q, %v; want a text that begins with %q", seed, got, err, safe)
		}
	}
}
