//go:build forebay_points && (linux || darwin)

package slablog

import (
	"strings"
	"sync"
	"testing"

	"github.com/forebay-log/forebay/internal/crashfile"
)

// In builds with test points, the file is also examined at each step that holds the lock. A kill at
// that step leaves only whole records, including all records that are in the file before and after
// the step.
var _ = func() bool {
	imageAround = func(t *testing.T, w *pump, do func()) {
		type snapshot struct {
			at    string
			there map[uint64]bool
		}
		var mu sync.Mutex
		var snapshots []snapshot
		see := func(at string) {
			im, err := crashfile.Read(w.store.crash.file.Path())
			if err != nil {
				t.Errorf("at %s: %v", at, err)
				return
			}
			l := snapshot{at, map[uint64]bool{}}
			for _, r := range im.Records {
				if _, _, err := parseKillLine(string(r.Data)); err != nil {
					t.Errorf("at %s: ticket %d: %v", at, r.Ticket, err)
				}
				l.there[r.Ticket] = true
			}
			mu.Lock()
			snapshots = append(snapshots, l)
			mu.Unlock()
		}
		hook := func(at string) {
			if strings.HasSuffix(at, "Locked") {
				see(at)
			}
		}
		see("before")
		pointHook.Store(&hook)
		defer pointHook.Store(nil)
		do()
		pointHook.Store(nil)
		see("after")
		mu.Lock()
		defer mu.Unlock()
		before, after := snapshots[0], snapshots[len(snapshots)-1]
		for ticket := range before.there {
			for _, l := range snapshots {
				if after.there[ticket] && !l.there[ticket] {
					t.Fatalf("ticket %d is not in the file at %s", ticket, l.at)
				}
			}
		}
	}
	return true
}()
