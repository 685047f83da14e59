package spool

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/forebay-log/forebay/batch"
)

// reader is where Next is; Spool.readMu guards it.
type reader struct {
	seg   *segment
	open  segmentReader
	fails int // failed reads in a row
}

// giveUpAfter is the number of failed reads at one place after which the place counts as damaged. A
// bad sector stays bad, and must not delay the batches after it.
const giveUpAfter = 3

// handout is one batch that Next handed out, or a gap before one.
type handout struct {
	through mark // settling it settles all batches before this mark
	gap     bool // batches that are gone: settled with the batch before
	seg     *segment
	records uint32 // of the account
	stored
}

const (
	joinMost     = 256     // batches that NextUpTo adds to one
	keepHandouts = 64      // handouts kept for reuse
	keepBytes    = 8 << 20 // ceiling of the buffers in them, in bytes
)

// Next returns the oldest batch that has not been returned yet, with its number. It never waits:
// it returns io.EOF if there is no such batch. After another Append it can be called again.
//
// The batch belongs to the caller until it is acknowledged or the spool rewound. Several batches
// may be out at once. Its Codec comes from [Options.Codec]. Damaged batches are skipped and
// reported, see [Options.OnEvent]. After any other error, which comes from the file system, the
// call can be repeated.
func (s *Spool) Next() (b *batch.Batch, seq uint64, err error) { return s.NextUpTo(0, 0) }

// NextUpTo is [Spool.Next], but combines several batches: the oldest one and the following ones,
// as long as they do not exceed the given numbers of payload bytes and records. All are from one
// segment, and so have one form, and all have one origin. seq is the number of the last batch; Ack
// of seq settles all of them. A batch that exceeds the limits is returned alone.
func (s *Spool) NextUpTo(bytes, records int) (b *batch.Batch, seq uint64, err error) {
	s.readMu.Lock()
	defer s.readMu.Unlock()
	for {
		if s.isClosed() {
			return nil, 0, errClosed
		}
		g, size := s.pick()
		if g == nil {
			return nil, 0, io.EOF
		}
		o := s.spare()
		err := s.load(g, size, o)
		if err == nil {
			s.handed = append(s.handed, o)
			return &o.batch, s.join(g, size, o, bytes, records), nil
		}
		s.free = append(s.free, o)
		if err := s.setback(g, err); err != nil {
			return nil, 0, err
		}
	}
}

// join adds to the batch of o, the last one handed out, those that follow it in g and fit. It
// returns the number of the last. A batch that cannot be read is left for the next call.
func (s *Spool) join(g *segment, size int64, o *handout, bytes, records int) (seq uint64) {
	seq = o.through.seq - 1
	for range joinMost {
		var h frameHeader
		if o.batch.Len() >= records || s.over(g) || s.r.open.frames.header(&h) != nil || h.origin != o.origin ||
			int64(h.payload) > int64(bytes-o.batch.Bytes()) || int64(h.entries) > int64(records-o.batch.Len()) {
			return seq
		}
		more := s.spare()
		if s.load(g, size, more) != nil {
			s.free = append(s.free, more)
			return seq
		}
		s.handed = append(s.handed, more)
		for _, r := range more.batch.Runs {
			o.batch.Add(r)
		}
		seq = more.through.seq - 1
	}
	return seq
}

// over reports whether Next is at the end of g. The file may contain more bytes: those of failed
// Appends, and of batches that are given up.
func (s *Spool) over(g *segment) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return g.done(s.read)
}

// pick returns the segment that holds the next batch and how many bytes of it may be read.
// It steps over batches that are gone, and returns nil if there is no such segment.
func (s *Spool) pick() (g *segment, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.segs {
		from := g.settled(s.acked)
		if from.seq < g.firstSeq {
			from = g.start()
		}
		if g.lane == parked || g.done(s.read) || g.done(from) || g.empty() {
			continue
		}
		if from.seq > s.read.seq {
			if g.lane == inLine && from.seq > s.acked.seq {
				if len(s.handed) == 0 {
					s.acked = from
				} else {
					s.handed = append(s.handed, &handout{through: from, gap: true})
				}
			}
			s.read = from
		}
		s.readSeg = g
		return g, g.size
	}
	return nil, 0
}

// firstLocked returns the mark before the oldest batch that is not settled and may be
// handed out.
func (s *Spool) firstLocked() mark {
	for _, g := range s.segs {
		if g.lane == late && !g.done(g.from) {
			return g.from
		}
		if g.lane == inLine && !g.done(s.acked) {
			break
		}
	}
	return s.acked
}

// load reads the batch at s.read from g.
func (s *Spool) load(g *segment, size int64, o *handout) error {
	r := &s.r
	if r.seg != g {
		r.close()
		if err := r.open.open(s.fs, s.dir, g.name, &g.segmentHeader, size, &s.opt); err != nil {
			return err
		}
		r.seg = g
		if err := r.open.skipTo(s.read.seq); err != nil {
			return err
		}
	}
	r.open.frames.size = size
	h, err := r.open.next(&o.stored)
	if err != nil {
		return err
	}
	r.fails = 0
	o.gap, o.seg, o.records = false, g, h.records
	o.through = mark{seq: h.seq + 1, rec: h.rec + uint64(h.records)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read = o.through
	return nil
}

// setback deals with a failed load. It returns an error for the caller of Next
// if that should be tried again, and nil if the segment is given up.
func (s *Spool) setback(g *segment, err error) error {
	r := &s.r
	off := int64(0)
	if r.seg == g {
		off = r.open.frames.off
	}
	switch {
	case isNotExist(err):
		err = errMissing
	case err == io.EOF, err == errTorn:
		err = errTruncated // there should be more
	}
	if !damaged(err) {
		r.fails++
		opened := r.seg == g
		r.close() // begin at the segment's start, as after any doubt
		if r.fails < giveUpAfter || !opened {
			return fmt.Errorf("spool: cannot read %s: %w", g.name, err)
		}
	}
	r.fails = 0
	r.close()
	s.spoil(g, off, cause(err))
	return nil
}

// spoil ends g at s.read, where it cannot be read.
func (s *Spool) spoil(g *segment, off int64, cause error) {
	s.mu.Lock()
	if g.gone {
		s.mu.Unlock()
		return // the quota has dropped it; its records are counted
	}
	e := &CorruptError{Segment: g.name, Offset: off, Records: g.end.rec - s.read.rec, Err: cause}
	g.damage, g.end = e, s.read
	s.count.corrupt += e.Records
	s.mu.Unlock()
	s.report(e)
	s.sweep()
}

// close closes the open segment.
func (r *reader) close() {
	if r.seg != nil {
		r.open.close()
		r.seg = nil
	}
}

// spare returns a handout to fill.
func (s *Spool) spare() *handout {
	if n := len(s.free); n > 0 {
		o := s.free[n-1]
		s.free = s.free[:n-1]
		return o
	}
	return new(handout)
}

// Rewind makes Next begin again with the oldest batch that is not acknowledged.
// Batches handed out before stay readable, but are no longer known to Ack unless
// handed out again.
func (s *Spool) Rewind() {
	s.readMu.Lock()
	defer s.readMu.Unlock()
	clear(s.handed)
	s.handed = s.handed[:0]
	s.r.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read, s.readSeg = s.firstLocked(), nil
}

// Ack settles all batches up to and including number seq, which must have been handed
// out. It may be called again for an earlier number. The caller must not read those
// batches afterwards, because their memory is reused.
//
// When Ack returns nil the batches are not handed out again after the death of the
// process. If the cursor cannot be written, Ack returns the error: the batches are settled
// in this process, but the next process may receive them again.
func (s *Spool) Ack(seq uint64) error {
	s.readMu.Lock()
	defer s.readMu.Unlock()
	s.mu.Lock()
	switch {
	case s.closed:
		s.mu.Unlock()
		return errClosed
	case seq >= max(s.read.seq, s.acked.seq):
		last := max(s.read.seq, s.acked.seq) - 1
		s.mu.Unlock()
		return fmt.Errorf("spool: cannot acknowledge batch %d: the last one handed out is %d", seq, last)
	}
	n := 0
	for n < len(s.handed) && (s.handed[n].through.seq <= seq+1 || s.handed[n].gap) {
		o := s.handed[n]
		s.count.acked += uint64(o.records)
		if g := o.seg; !o.gap && g.lane == late {
			g.from = o.through
			if !slices.Contains(s.moved, g) {
				s.moved = append(s.moved, g)
			}
		}
		if o.through.seq > s.acked.seq {
			s.acked = o.through // in line, all batches before it are settled, and the others are parked
		}
		n++
	}
	acked, lastID, end := s.acked, s.lastID, s.tailLocked()
	s.mu.Unlock()
	if n == 0 {
		return nil
	}
	for _, o := range s.handed[:n] {
		if !o.gap {
			s.cur.noteSettled(o.origin, o.slots)
		}
	}
	s.reuse(n)
	err := s.cur.write(acked, lastID, end)
	err = errors.Join(err, s.noteLate())
	if s.settled(s.r.seg) {
		s.r.close() // some systems delete no open file
	}
	s.sweep()
	s.trimTail()
	if err != nil {
		return fmt.Errorf("spool: cannot store the acknowledged position: %w", err)
	}
	return nil
}

// tailLocked returns where the last segment ends.
func (s *Spool) tailLocked() mark {
	if n := len(s.segs); n > 0 {
		return s.segs[n-1].end
	}
	return s.acked
}

// settled reports whether g, which may be nil, is about to be swept.
func (s *Spool) settled(g *segment) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return g != nil && g != s.active && g.done(g.noted(s.acked))
}

// reuse recycles the first n handouts.
func (s *Spool) reuse(n int) {
	kept := 0
	for _, o := range s.free {
		kept += o.bytes()
	}
	for _, o := range s.handed[:n] {
		if o.batch.Reset(); cap(o.batch.Runs) > 1 { // of others, joined with it
			o.batch.Runs = nil
		}
		if kept += o.bytes(); !o.gap && len(s.free) < keepHandouts && kept <= keepBytes {
			s.free = append(s.free, o)
		}
	}
	k := copy(s.handed, s.handed[n:])
	clear(s.handed[k:])
	s.handed = s.handed[:k]
}

// trimTail ends the last segment once it is completely acknowledged, so that an empty spool does
// not keep megabytes of old records. A small file may stay until Close: a new file for every batch
// would cost more.
func (s *Spool) trimTail() {
	s.mu.Lock()
	g := s.active
	worth := g != nil && g.done(s.acked) && g.size >= s.opt.SegmentBytes/4
	s.mu.Unlock()
	if !worth || !s.writeMu.TryLock() { // an Append under way means there is more
		return
	}
	defer s.writeMu.Unlock()
	if s.w.seg == g {
		s.r.close()
		_ = s.seal()
	}
}
