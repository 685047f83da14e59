//go:build linux || darwin

package slablog

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/crashfile"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

// acceptsSome accepts a number of batches, and none after that.
type acceptsSome struct{ left int }

func (s *acceptsSome) Send(context.Context, *batch.Batch) batch.Outcome {
	if s.left--; s.left >= 0 {
		return batch.Outcome{}
	}
	return failed()
}

// leftByClose returns the content of a file left by Close. Some of its slabs were used more than
// once, and the destination has accepted the oldest records.
func leftByClose(t *testing.T, rng *rand.Rand) []byte {
	t.Helper()
	dir := t.TempDir()
	s := &acceptsSome{left: rng.IntN(8)}
	w := mustSink(t, s, &slab.Options{SlabBytes: 1024, SlabCount: 4, WhenFull: slab.DropOldest(), Crash: &slab.Crash{Dir: dir, Required: true}})
	for i := range 20 + rng.IntN(100) {
		_ = w.WriteRecord([]byte(fmt.Sprintf("%04d %s\n", i, strings.Repeat("x", rng.IntN(60)))), batch.Meta{})
		time.Sleep(time.Duration(rng.IntN(20)) * time.Microsecond)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _ = w.Shutdown(ctx)
	<-w.done
	names, err := filepath.Glob(filepath.Join(dir, "*"+crashfile.Suffix))
	if err != nil || len(names) > 1 {
		t.Fatal(names, err)
	}
	if len(names) == 0 { // the destination has accepted all records, so there is no file
		return leftByClose(t, rng)
	}
	data, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if binary.LittleEndian.Uint64(data[crashfile.HeadsOff+crashfile.HeadBytes*i+16:]) == 0 {
			t.Errorf("slab %d is not sealed", i)
		}
	}
	return data
}

// Bytes of a file left by Close are changed. Each recovered record equals the original, and no
// count exceeds what the file can contain.
func TestFlippedBytesOfAClosedFile(t *testing.T) {
	rng := testkit.Rand(testkit.Seed(t))
	const most = 4*1024/layout.SlotBytes + 1<<14
	for range 20 {
		data := leftByClose(t, rng)
		whole, err := crashfile.Parse(data, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := map[uint64]string{}
		for _, r := range whole.Records {
			want[r.Ticket] = fmt.Sprintf("%v %s", r.Meta, r.Data)
		}
		for range 100 {
			bad := append([]byte(nil), data...)
			for range 1 + rng.IntN(6) {
				at := crashfile.Page + rng.IntN(len(bad)-crashfile.Page)
				if rng.IntN(2) == 0 { // change a byte near the slabs
					at = len(bad) - 1 - rng.IntN(4*1024)
				} else if rng.IntN(2) == 0 {
					at = crashfile.HeadsOff + rng.IntN(4*crashfile.HeadBytes)
				}
				bad[at] ^= byte(1 + rng.IntN(255))
			}
			im, err := crashfile.Parse(bad, nil, nil)
			if err != nil {
				continue
			}
			for _, r := range im.Records {
				if got := fmt.Sprintf("%v %s", r.Meta, r.Data); want[r.Ticket] != got {
					t.Fatalf("record %d is %q, was %q", r.Ticket, got, want[r.Ticket])
				}
			}
			if im.Unreturned > most || im.Damaged > most || im.HeapOnly > most || im.Evicted > most || im.Settled > most {
				t.Fatalf("%d unreturned, %d damaged, %d on the heap, %d evicted, %d settled", im.Unreturned, im.Damaged, im.HeapOnly, im.Evicted, im.Settled)
			}
		}
	}
}
