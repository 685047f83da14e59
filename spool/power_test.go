package spool

import (
	"errors"
	"io"
	"math/rand"
	"slices"
	"testing"

	"github.com/forebay-log/forebay/internal/vfs"
)

// powerRun appends, reads, acknowledges and syncs at random, then returns the
// file system as a loss of power leaves it.
type powerRun struct {
	t       *testing.T
	r       *rand.Rand
	stored  map[uint64][]int // by number, what Append was last given under it
	safe    uint64           // last number that was on stable storage
	settled uint64           // last number given to Ack
	next    int
}

func (p *powerRun) run(mem *vfs.Mem, o *Options) *vfs.Mem {
	d := newTestDict(uint32(p.r.Intn(50)))
	o.Streams = d
	s := mustOpen(p.t, mem, o)
	p.check(s, d)
	steps := p.r.Intn(60)
	last := uint64(0)
	for range steps {
		switch k := p.r.Intn(10); {
		case k < 5:
			n := 1 + p.r.Intn(40)
			seq, err := s.Append(numbered(p.next, n, d, nil))
			if err != nil {
				p.t.Fatal(err)
			}
			ns := make([]int, n)
			for i := range ns {
				ns[i] = p.next + i
			}
			p.stored[seq] = ns
			p.next += n
			if o.Sync == syncAlways {
				p.safe = seq
			}
			last = seq
		case k < 8:
			_, seq, err := s.Next()
			if errors.Is(err, io.EOF) {
				continue
			}
			if err != nil {
				p.t.Fatal(err)
			}
			if p.r.Intn(2) == 0 {
				p.settled = seq
				if err := s.Ack(seq); err != nil {
					p.t.Fatal(err)
				}
			}
		case k < 9:
			if err := s.Sync(); err != nil {
				p.t.Fatal(err)
			}
			p.safe = max(p.safe, last)
		default:
			s.Rewind()
		}
	}
	mustBalance(p.t, s)
	keep := []float64{0, 0.3, 0.5, 0.9, 1}[p.r.Intn(5)]
	clone := mem.CrashClone(p.r, keep)
	mem.ReleaseLocks()
	mustClose(p.t, s)
	return clone
}

// check reads everything in s: nothing that was not stored, everything that was
// synced and not settled, in order.
func (p *powerRun) check(s *Spool, d *testDict) {
	recovered := s.Stats().Recovered
	records, last := uint64(0), uint64(0)
	found := map[uint64]bool{}
	for seq, b := range each(p.t, s) {
		ns, err := numbers(b, d)
		if err != nil {
			p.t.Fatal(err)
		}
		if seq <= last || !slices.Equal(ns, p.stored[seq]) {
			p.t.Fatalf("batch %d after %d: records %v, stored %v", seq, last, ns, p.stored[seq])
		}
		last, found[seq] = seq, true
		records += uint64(len(ns))
	}
	for seq := p.settled + 1; seq <= p.safe; seq++ {
		if !found[seq] && p.stored[seq] != nil {
			p.t.Fatalf("batch %d was synced and is lost; settled %d, synced %d, found up to %d", seq, p.settled, p.safe, last)
		}
	}
	if lost := s.Stats().Corrupt; records+lost != recovered {
		p.t.Fatalf("%d records recovered, %d read and %d unreadable", recovered, records, lost)
	}
	for seq := range p.stored {
		if !found[seq] {
			delete(p.stored, seq) // for good
		}
	}
	p.safe, p.settled = last, 0 // what a loss of power leaves is on stable storage
	s.Rewind()
}

// What a loss of power leaves: the last synced state of every page and name, and
// any part of what came later.
func TestPowerLoss(t *testing.T) {
	runs := 60
	if torture() {
		runs = 20_000
	}
	for _, policy := range []string{syncNever, syncAlways} {
		t.Run(string(policy), func(t *testing.T) {
			p := &powerRun{t: t, r: testSeed(t), stored: map[uint64][]int{}}
			mem := vfs.NewMem()
			for i := range runs {
				if i%10 == 0 {
					mem = vfs.NewMem()
					clear(p.stored)
					p.safe, p.settled = 0, 0
				}
				mem = p.run(mem, &Options{Sync: policy, SegmentBytes: 4<<10 + p.r.Int63n(30<<10)})
			}
		})
	}
}
