package testkit

import (
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/layout"
)

// ErrDisk is an error for a Spill that fails in a test.
var ErrDisk = errors.New("no space left on device")

// A Spill is a queue of batches in memory that behaves like a spool on disk.
type Spill struct {
	mu     sync.Mutex
	frames []spillFrame // frames that are not acknowledged
	next   int          // index of the frame that Next returns
	seq    uint64
	acc    batch.Account // the account, without Pending
	quota  int           // maximum number of records; 0 means no limit
	fail   error         // error that Append returns
	bad    error         // error that Next returns
	peak   int           // largest number of records so far
	slow   func() time.Duration
}

type spillFrame struct {
	seq  uint64
	b    *batch.Batch
	recs uint64
}

// Quota limits the spill to n records. Above the limit, the spill drops its oldest batches, except
// those that Next has returned.
func (s *Spill) Quota(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quota = n
}

// Fail makes Append return err, or succeed again if err is nil.
func (s *Spill) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

// FailNext makes Next return err, or succeed again if err is nil.
func (s *Spill) FailNext(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bad = err
}

// Slow delays Append and Next by a random time of up to d.
func (s *Spill) Slow(rng *rand.Rand, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rng = Rand(rng.Uint64())
	s.slow = func() time.Duration { return time.Duration(rng.Int64N(int64(d))) }
}

// pause waits for the delay set by Slow.
func (s *Spill) pause() {
	s.mu.Lock()
	var d time.Duration
	if s.slow != nil {
		d = s.slow()
	}
	s.mu.Unlock()
	if d > 0 {
		time.Sleep(d)
	}
}

// Append copies b and adds it at the end.
func (s *Spill) Append(b *batch.Batch) (uint64, error) {
	s.pause()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return 0, s.fail
	}
	n := records(b)
	for s.quota > 0 && s.pendingLocked()+n > uint64(s.quota) && s.next < len(s.frames) {
		s.acc.Dropped[batch.Quota] += s.frames[s.next].recs
		s.frames = append(s.frames[:s.next], s.frames[s.next+1:]...)
	}
	s.seq++
	s.frames = append(s.frames, spillFrame{seq: s.seq, b: clone(b), recs: n})
	s.acc.Accepted += n
	s.peak = max(s.peak, int(s.pendingLocked()))
	return s.seq, nil
}

// NextUpTo returns the oldest batch that it has not returned yet. It combines no batches.
func (s *Spill) NextUpTo(int, int) (*batch.Batch, uint64, error) {
	s.pause()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.bad != nil:
		return nil, 0, s.bad
	case s.next == len(s.frames):
		return nil, 0, io.EOF
	}
	f := s.frames[s.next]
	s.next++
	return f.b, f.seq, nil
}

// Ack removes all batches up to seq, which count as delivered.
func (s *Spill) Ack(seq uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.frames) > 0 && s.frames[0].seq <= seq {
		if s.next == 0 {
			return errors.New("acknowledged what was not handed out")
		}
		s.acc.Delivered += s.frames[0].recs
		s.frames[0].b.Reset() // overwrites the batch, to detect reads after Ack
		s.frames, s.next = s.frames[1:], s.next-1
	}
	return nil
}

// Reopen simulates a restart of the process. Batches that are not acknowledged are recovered: Next
// returns them again, and the counters restart.
func (s *Spill) Reopen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = 0
	s.acc = batch.Account{Recovered: s.pendingLocked()}
}

// Account returns the account of the records in the spill.
func (s *Spill) Account() batch.Account {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.acc
	a.Pending.Spill = recordsIn(s.frames[s.next:])
	a.Pending.Inflight = recordsIn(s.frames[:s.next])
	return a
}

// Peak returns the largest number of records in the spill so far.
func (s *Spill) Peak() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peak
}

func (s *Spill) pendingLocked() uint64 { return recordsIn(s.frames) }

func recordsIn(frames []spillFrame) (n uint64) {
	for i := range frames {
		n += frames[i].recs
	}
	return n
}

func records(b *batch.Batch) (n uint64) {
	for i := range b.Runs {
		for j := range b.Runs[i].Len() {
			if b.Runs[i].Slot(j).Flags&layout.FlagMarker == 0 {
				n++
			}
		}
	}
	return n
}

// clone returns a copy of b, including its slots.
func clone(b *batch.Batch) *batch.Batch {
	data, slots := make([]byte, 0, b.Bytes()), make([]layout.Slot, 0, b.Len())
	for i := range b.Runs {
		slots = b.Runs[i].AppendSlots(slots, uint32(len(data)))
		data = append(data, b.Runs[i].Data()...)
	}
	c := &batch.Batch{Codec: b.Codec, Origin: b.Origin}
	c.Add(layout.NewRun(data, slots))
	return c
}
