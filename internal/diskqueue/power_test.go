package diskqueue

import (
	"errors"
	"io"
	"io/fs"
	"math/rand"
	"slices"
	"testing"

	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/spool"
)

// A powerRun appends, reads, acknowledges and syncs at random, until its loss of power.
type powerRun struct {
	t       *testing.T
	r       *rand.Rand
	stored  map[uint64][]int // records by batch number; if several Appends returned the number, those of the last one
	refused [][]int          // batches whose Append failed, so their numbers are unknown
	safe    uint64           // last number known to be on stable storage
	settled uint64           // last number passed to Ack
	next    int
	failing bool // syncs may fail
	failed  int
}

// A lossySync is a file system with failing syncs. A sync after a failed one succeeds, but omits
// the data written before the failure.
type lossySync struct {
	vfs.FS
	p *powerRun
}

type lossySyncFile struct {
	vfs.File
	fs lossySync
}

func (f lossySync) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	file, err := f.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return lossySyncFile{file, f}, nil
}

func (f lossySyncFile) Sync() error {
	if p := f.fs.p; p.failing && p.r.Intn(6) == 0 {
		p.failed++
		f.fs.FS.(*vfs.Mem).FailSync(f.File, p.r, p.r.Float64())
		return errInjected
	}
	return f.File.Sync()
}

func (f lossySync) SyncDir(dir string) error {
	if f.p.failing && f.p.r.Intn(6) == 0 {
		f.p.failed++
		return errInjected
	}
	return f.FS.SyncDir(dir)
}

func (p *powerRun) run(mem *vfs.Mem, o *spool.Options) *vfs.Mem {
	d := newTestDict(uint32(p.r.Intn(50)))
	o.Streams = d
	s := mustOpen(p.t, lossySync{mem, p}, o)
	p.check(s, d)
	p.failing = p.r.Intn(2) == 0
	steps := p.r.Intn(60)
	last := p.safe
	for range steps {
		switch k := p.r.Intn(10); {
		case k < 5:
			n := 1 + p.r.Intn(40)
			ns := make([]int, n)
			for i := range ns {
				ns[i] = p.next + i
			}
			seq, err := s.Append(numbered(p.next, n, d, nil))
			if p.failing && errors.Is(err, errInjected) {
				p.refused = append(p.refused, ns)
				p.next += n
				continue
			}
			if err != nil {
				p.t.Fatal(err)
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
			err := s.Sync()
			if err != nil && !(p.failing && errors.Is(err, errInjected)) {
				p.t.Fatal(err)
			}
			if err == nil {
				p.safe = max(p.safe, last)
			}
		default:
			s.Rewind()
		}
	}
	mustBalance(p.t, s)
	keep := []float64{0, 0.3, 0.5, 0.9, 1}[p.r.Intn(5)]
	clone := mem.CrashClone(p.r, keep)
	mem.ReleaseLocks()
	p.failing = false
	if err := s.Close(); err != nil && !errors.Is(err, errInjected) { // error of an earlier sync
		p.t.Fatal(err)
	}
	return clone
}

// check reads everything in s. It must return, in order, each batch that was synced and not
// settled, and only batches that were stored.
func (p *powerRun) check(s *Spool, d *testDict) {
	recovered := s.Stats().Recovered
	records, last := uint64(0), uint64(0)
	found := map[uint64]bool{}
	for seq, b := range each(p.t, s) {
		ns, err := numbers(b, d)
		if err != nil {
			p.t.Fatal(err)
		}
		if i := slices.IndexFunc(p.refused, func(r []int) bool { return slices.Equal(r, ns) }); i >= 0 && (p.stored[seq] == nil || seq <= p.settled) {
			p.stored[seq] = ns // the batch of the failed Append was stored and may be the only one with this number
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
			delete(p.stored, seq) // acknowledged, so it must not appear again
		}
	}
	p.safe, p.settled = last, 0 // everything that survives a loss of power is on stable storage
	s.Rewind()
}

// After a loss of power, the disk has the last synced state of each page and file name, and a
// random part of the later changes. Synced and unacknowledged batches are recovered.
func TestPowerLoss(t *testing.T) {
	runs := testkit.Rounds(t, 60, 5000)
	for _, policy := range []string{syncNever, syncAlways} {
		t.Run(string(policy), func(t *testing.T) {
			p := &powerRun{t: t, r: testSeed(t), stored: map[uint64][]int{}}
			mem := vfs.NewMem()
			for i := range runs {
				if i%10 == 0 {
					mem = vfs.NewMem()
					clear(p.stored)
					p.refused = nil
					p.safe, p.settled = 0, 0
				}
				mem = p.run(mem, &spool.Options{Sync: policy, SegmentBytes: 4<<10 + p.r.Int63n(30<<10)})
			}
			if p.failed == 0 {
				t.Error("no sync has failed")
			}
		})
	}
}
