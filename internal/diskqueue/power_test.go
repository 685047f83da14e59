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

	untilLoss int      // number of syncs until the power is lost during a sync; 0: it is lost later
	left      *vfs.Mem // what survives the loss during a sync; nil: the power is on
}

// A lossySync is a file system with failing syncs. A sync after a failed one succeeds, but omits
// the data written before the failure. All syncs after the loss of power fail.
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
	p, mem := f.fs.p, f.fs.FS.(*vfs.Mem)
	if p.untilLoss--; p.untilLoss == 0 {
		p.left = p.losePower(mem)
	}
	if p.left != nil {
		return errInjected
	}
	if p.failing && p.r.Intn(6) == 0 {
		p.failed++
		mem.FailSync(f.File, p.r, p.r.Float64())
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

// losePower returns the state that a loss of power leaves.
func (p *powerRun) losePower(mem *vfs.Mem) *vfs.Mem {
	return mem.CrashClone(p.r, []float64{0, 0.3, 0.5, 0.9, 1}[p.r.Intn(5)])
}

func (p *powerRun) run(mem *vfs.Mem, o *spool.Options) *vfs.Mem {
	d := newTestDict(uint32(p.r.Intn(50)))
	o.Streams = d
	var log eventLog
	o.OnEvent = log.add
	s := mustOpen(p.t, lossySync{mem, p}, o)
	p.check(s, d)
	if o.Sync == syncAlways {
		p.checkUndamaged(s, &log)
	}
	p.failing = p.r.Intn(2) == 0
	p.left, p.untilLoss = nil, p.r.Intn(2)*(1+p.r.Intn(30))
	mayFail := func(err error) bool { return (p.failing || p.left != nil) && errors.Is(err, errInjected) }
	steps := p.r.Intn(60)
	last := p.safe
	for range steps {
		if p.left != nil {
			break
		}
		switch k := p.r.Intn(10); {
		case k < 5:
			n := 1 + p.r.Intn(40)
			ns := make([]int, n)
			for i := range ns {
				ns[i] = p.next + i
			}
			seq, err := s.Append(numbered(p.next, n, d, nil))
			if mayFail(err) {
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
			if err != nil && !mayFail(err) {
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
	clone := p.left
	if clone == nil {
		clone = p.losePower(mem)
	}
	mem.ReleaseLocks()
	p.failing, p.untilLoss, p.left = false, 0, nil
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

// checkUndamaged checks that Open and the reads of p.check have reported no damage of a frame. With
// Sync "always", all frames whose Append has returned are synced, and other frames are no loss. Two
// reports are allowed: a segment that never got its header, without lost records, and missing
// batches, because the cursor may be older than the deletion of the segments that it counts.
func (p *powerRun) checkUndamaged(s *Spool, log *eventLog) {
	if n := s.Stats().Corrupt; n > 0 {
		p.t.Fatalf("%d records count as lost", n)
	}
	for _, e := range log.ofKind(p.t, s, "corrupt") {
		var ce *spool.CorruptError
		if !errors.As(e.Err, &ce) || ce.Err != errCutOff && (ce.Offset > 0 || ce.Records > 0) {
			p.t.Fatal(e.Err)
		}
	}
}

// After a loss of power, the disk has the last synced state of each page and file name, and a
// random part of the later changes. Synced and unacknowledged batches are recovered. With Sync
// "always" no damage is reported, even if the power was lost during an Append.
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
