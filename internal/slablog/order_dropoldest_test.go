package slablog

import (
	"fmt"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/slab"
)

// DropOldest drops the oldest records that no Send is reading. While the destination hangs, no
// write is refused, regardless of the sizes of the records.
func TestDropOldestRefusesNoWrite(t *testing.T) {
	for _, tt := range []struct {
		slabs, oversizeEvery int
	}{{4, 0}, {3, 0}, {2, 0}, {8, 10}, {4, 10}} {
		t.Run(fmt.Sprintf("%d slabs, oversize every %d", tt.slabs, tt.oversizeEvery), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				g := newGate()
				w := mustNew(t, g, &slab.Options{SlabBytes: 1024, SlabCount: tt.slabs, WhenFull: slab.DropOldest()})
				mustWrite(t, w, 0, 30)
				time.Sleep(time.Second) // the destination hangs with record 0
				refused := 0
				for i := 1; i < 500; i++ {
					n := 30
					if tt.oversizeEvery > 0 && i%tt.oversizeEvery == 0 {
						n = 2000
					}
					if w.WriteRecord(line(i, n), batch.Meta{}) != nil {
						refused++
					}
				}
				g.open()
				closeNow(t, w)
				ns := numbers(t, g.String())
				if refused > 0 {
					t.Errorf("%d of 499 writes were refused; arrived: %v", refused, ns)
				}
				if last := ns[len(ns)-1]; last != 499 {
					t.Errorf("the last record that arrived is %d", last)
				}
			})
		})
	}
}
