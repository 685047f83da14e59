//go:build linux || darwin

package slablog

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/crashfile"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/slab"
)

// A holderSink is a destination whose Held returns some records. It stores the records that it
// receives.
type holderSink struct {
	held func(origin [16]byte, first, last uint64) []layout.Tickets
	asks int
	got  []uint64
}

func (s *holderSink) Held(origin [16]byte, first, last uint64) []layout.Tickets {
	s.asks++
	return s.held(origin, first, last)
}

func (s *holderSink) Send(_ context.Context, b *batch.Batch) (o batch.Outcome) {
	for _, r := range b.All() {
		s.got = append(s.got, r.Ticket)
	}
	return o
}

// writeFile writes a crash-safe file with 8 records to dir, as a killed process leaves it, and
// returns the id of the Writer. The sixth record is larger than a slab.
func writeFile(t *testing.T, dir string) [16]byte {
	t.Helper()
	g := newGate()
	w := crashWriter(t, t.TempDir(), g, slab.Options{SlabBytes: 1024, SlabCount: 8, MaxRecord: 3000})
	for i := range 8 {
		n := 50
		if i == 5 {
			n = 2000
		}
		mustWrite(t, w, i, n)
	}
	copyKilled(t, w, dir)
	g.open()
	closeNow(t, w)
	return w.conf.id
}

// Records of a dead process that Held returns are neither sent nor counted as recovered. Held is
// called once per file. Invalid results are ignored.
func TestRecoveryOmitsHeldRecords(t *testing.T) {
	for _, c := range []struct {
		name string
		held []layout.Tickets
		want []uint64
		big  uint64
	}{
		{"nothing", nil, []uint64{1, 2, 3, 4, 5, 6, 7, 8}, 1},
		{"the first", []layout.Tickets{{First: 1, Last: 3}}, []uint64{4, 5, 6, 7, 8}, 1},
		{"the last", []layout.Tickets{{First: 8, Last: 8}, {First: 6, Last: 7}}, []uint64{1, 2, 3, 4, 5}, 0},
		{"some twice", []layout.Tickets{{First: 4, Last: 6}, {First: 2, Last: 2}, {First: 2, Last: 5}}, []uint64{1, 7, 8}, 0},
		{"all", []layout.Tickets{{First: 0, Last: 1 << 63}}, nil, 0},
		{"nonsense", []layout.Tickets{{First: 5, Last: 3}, {First: 9, Last: 100}}, []uint64{1, 2, 3, 4, 5, 6, 7, 8}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			ids := [][16]byte{writeFile(t, dir), writeFile(t, dir)}
			s := &holderSink{held: func(origin [16]byte, first, last uint64) []layout.Tickets {
				if !slices.Contains(ids, origin) || first != 1 || last != 8 {
					t.Errorf("asked about %d to %d of %x", first, last, origin)
				}
				return c.held
			}}
			w := mustSink(t, s, &slab.Options{Crash: &slab.Crash{Dir: dir, Required: true}})
			closeNow(t, w)
			n := uint64(len(c.want))
			if want := slices.Concat(c.want, c.want); !slices.Equal(s.got, want) || s.asks != 2 {
				t.Errorf("sent %v, want %v; asked %d times", s.got, want, s.asks)
			}
			if a := w.Account(); a != (batch.Account{Recovered: 2 * n, Delivered: 2 * n}) {
				t.Errorf("the account is %v", a)
			}
			if r := w.Stats().Recovery; r.Records != 2*n || r.Held != 2*(8-n) || r.Oversize != 2*c.big || r.DamagedFiles != 0 {
				t.Errorf("recovery %+v", r)
			}
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// If Held panics, no record counts as held.
func TestPanicInHeldMeansNothingIsHeld(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir)
	s := &holderSink{held: func([16]byte, uint64, uint64) []layout.Tickets { panic("no") }}
	w := mustSink(t, s, &slab.Options{Crash: &slab.Crash{Dir: dir, Required: true}})
	closeNow(t, w)
	if len(s.got) != 8 {
		t.Errorf("sent %v", s.got)
	}
}

// Replay omits the records that Held returns.
func TestReplayOmitsHeldRecords(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir)
	s := &holderSink{held: func([16]byte, uint64, uint64) []layout.Tickets { return []layout.Tickets{{First: 2, Last: 7}} }}
	done, err := crashfile.Replay(t.Context(), oneFile(t, dir), func(ctx context.Context, b *batch.Batch) batch.Outcome {
		s.Send(ctx, b)
		return batch.Outcome{}
	}, &crashfile.ReplayOptions{Held: s.Held})
	if err != nil || done.Records != 2 || !slices.Equal(s.got, []uint64{1, 8}) {
		t.Errorf("%v, %+v, sent %v", err, done, s.got)
	}
}

// A record of an undefined stream does not count as lost if Held returns it.
func TestHeldRecordOfNoStream(t *testing.T) {
	dir := t.TempDir()
	names := []string{""}
	for i := 1; i <= 100; i++ {
		names = append(names, fmt.Sprintf("%d-%s", i, strings.Repeat("x", 1000)))
	}
	keepStreams(t, dir, &dictSink{names: names}, func(w *pump) {
		for i := 1; i <= 100; i++ {
			_ = w.WriteRecord(fmt.Appendf(nil, "%d\n", i), batch.Meta{Stream: uint32(i)})
		}
	})
	path := oneFile(t, dir)
	patch(t, path+crashfile.StreamSuffix, func(b []byte) { b[500] ^= 1 }) // the first entry of the dictionary
	im, err := crashfile.Read(path)
	if err != nil || im.Undefined == 0 {
		t.Fatalf("%v, %v", err, im)
	}
	d := &dictSink{names: names}
	w := mustSink(t, holdsUndefined{d, im}, &slab.Options{Crash: &slab.Crash{Dir: dir, Required: true}})
	closeNow(t, w)
	n := 100 - im.Undefined
	if s := w.Stats(); s.Recovery.Undefined != 0 || s.Recovery.Held != im.Undefined || s.Account != (batch.Account{Recovered: n, Delivered: n}) {
		t.Errorf("%+v, %v", s.Recovery, s.Account)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// holdsUndefined is a destination whose Held returns the records of undefined streams.
type holdsUndefined struct {
	*dictSink
	im *crashfile.Image
}

func (s holdsUndefined) Held([16]byte, uint64, uint64) (held []layout.Tickets) {
	for _, r := range s.im.Records {
		if !s.im.Defined(r.Stream) {
			held = append(held, layout.Tickets{First: r.Ticket, Last: r.Ticket})
		}
	}
	return held
}
