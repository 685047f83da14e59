package diskqueue

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/forebay-log/forebay/batch"
)

// reader reads batches for Next, hands them out and settles them on Ack.
//
// It reads one segment at a time, queue.reading, from the beginning, because stream definitions
// apply to the frames after them. Rewind and each failed read close the segment, so that the next
// call reads it from the beginning. Spool.mu guards the fields.
type reader struct {
	queue  *queue
	dir    *directory
	cursor *cursor

	open      segmentReader // of queue.reading
	fails     int           // number of consecutive failed reads
	handedOut handouts
}

// giveUpAfter is the number of consecutive failed reads at one offset after which the offset counts
// as damaged. A bad sector stays bad, and must not delay later batches.
const giveUpAfter = 3

// joinMost is the maximum number of batches that NextUpTo adds to the first one. Each batch keeps a
// buffer until Ack.
const joinMost = 256

// Next returns the oldest batch that has not been returned yet, with its number. It never waits: it
// returns io.EOF if there is no such batch. After another Append, the next call returns the new
// batch.
//
// The batch belongs to the caller until it is acknowledged or the spool rewound. The caller may
// hold several batches at once. Its Codec comes from [spool.Options.Codec]. Damaged batches are
// skipped and reported, see [spool.Options.OnEvent]. After any other error, which comes from the
// file system, the call can be repeated.
func (s *Spool) Next() (b *batch.Batch, seq uint64, err error) { return s.NextUpTo(0, 0) }

// NextUpTo is [Spool.Next], but combines several batches: the oldest one and the following ones, as
// long as they do not exceed the given numbers of payload bytes and records. All come from the same
// segment, so they have the same content type and schema. They also have the same Origin. seq is
// the number of the last batch; Ack of seq settles all of them. A batch that exceeds the limits is
// returned alone.
func (s *Spool) NextUpTo(bytes, records int) (b *batch.Batch, seq uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue.closed {
		return nil, 0, errClosed
	}
	r := s.reader
	for {
		g := r.queue.pick()
		if g == nil {
			return nil, 0, io.EOF
		}
		o, err := r.load(g)
		if err == nil {
			return &o.batch, r.join(g, o, bytes, records), nil
		}
		if err := r.failed(g, err); err != nil {
			return nil, 0, err
		}
	}
}

// join extends the batch of o with the batches that follow it in g, while they fit into the limits.
// It returns the number of the last batch. A batch that cannot be read is left for the next call of
// Next.
func (r *reader) join(g *segment, o *handout, bytes, records int) (seq uint64) {
	last := o
	for n := 0; n < joinMost && o.batch.Len() < records; n++ {
		var h frameHeader
		// Only batches with the same Origin are combined, because a batch has a single Origin.
		if r.queue.pick() != g || r.open.header(&h) != nil || h.origin != o.origin ||
			int64(h.payload) > int64(bytes-o.batch.Bytes()) || int64(h.entries) > int64(records-o.batch.Len()) {
			break
		}
		next, err := r.load(g)
		if err != nil {
			break
		}
		// The runs refer to the memory of next, which is kept until the last combined batch is
		// acknowledged.
		for _, run := range next.batch.Runs {
			o.batch.Add(run)
		}
		last = next
	}
	return last.at.seq
}

// load reads the batch at the read mark, which is in g, and hands it out.
func (r *reader) load(g *segment) (*handout, error) {
	if r.queue.reading != g {
		r.closeFile()
		if err := r.open.open(r.dir, g, g.size, r.queue.opt); err != nil {
			return nil, err
		}
		r.queue.reading = g
	}
	// The segment may have grown since the last call.
	r.open.size = g.size
	if err := r.open.skipTo(r.queue.read.seq); err != nil {
		return nil, err
	}
	var h frameHeader
	if err := r.open.header(&h); err != nil {
		return nil, err
	}
	o := r.handedOut.spare()
	if err := r.open.read(&h, o); err != nil {
		r.handedOut.free = append(r.handedOut.free, o)
		return nil, err
	}
	r.open.skip(&h)
	r.fails = 0
	o.seg = g
	r.queue.handOut(o.end)
	r.handedOut.list = append(r.handedOut.list, o)
	return o, nil
}

// failed handles an error of load. It returns an error for the caller of Next, who may repeat the
// call. It returns nil if it has given up the rest of the segment as damaged.
func (r *reader) failed(g *segment, err error) error {
	off, opened := int64(0), r.queue.reading == g
	if opened {
		off = r.open.off
	}
	r.closeFile() // the next call reads the segment from its start
	switch {
	case isNotExist(err):
		err = errMissing
	case err == io.EOF, err == errTorn:
		err = errTruncated // the file is shorter than after the last Append
	}
	if !damaged(err) {
		r.fails++
		// A file that could not be opened, for example because no descriptors were free, is never
		// given up.
		if r.fails < giveUpAfter || !opened {
			return fmt.Errorf("spool: cannot read %s: %w", g.name, err)
		}
	}
	r.fails = 0
	r.queue.markDamaged(g, off, cause(err))
	return nil
}

// closeFile closes the open segment, if there is one.
func (r *reader) closeFile() {
	if r.queue.reading != nil {
		r.open.close()
		r.queue.reading = nil
	}
}

// Rewind makes Next begin again with the oldest batch that is not acknowledged. Batches
// returned before stay readable, but Ack does not accept their numbers until they are
// returned again.
func (s *Spool) Rewind() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reader.handedOut.list = nil // the batches stay readable, so their memory is not reused
	s.reader.closeFile()
	s.queue.rewind()
}

// Ack settles all batches up to and including number seq, which must have been handed
// out. It may be called again for an earlier number. The caller must not read those
// batches afterwards, because their memory is reused.
//
// When Ack returns nil the batches are not handed out again after the death of the
// process. If the cursor cannot be written, Ack returns the error: the batches are settled
// in this process, but the next process may receive them again.
func (s *Spool) Ack(seq uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue.closed {
		return errClosed
	}
	err := s.reader.ack(seq)
	if s.queue.finished(s.queue.active) { // an empty spool does not keep megabytes of old records
		_ = s.appender.seal()
	}
	return err
}

// ack moves the marks, writes the cursor, and then deletes files. If the process dies in between,
// batches are handed out again, but none is lost.
func (r *reader) ack(seq uint64) error {
	// The account counts the batches as delivered even if the cursor cannot be written afterwards.
	n, err := r.queue.settle(r.handedOut.list, seq)
	if n == 0 {
		return err
	}
	for _, o := range r.handedOut.list[:n] {
		r.cursor.noteSettled(o.origin, o.slots)
	}
	r.handedOut.recycle(n)
	err = r.cursor.write(r.queue.position())
	err = errors.Join(err, r.storeUnparked())
	if r.queue.finished(r.queue.reading) {
		r.closeFile() // closed before, because some systems do not delete open files
	}
	r.queue.sweep()
	if err != nil {
		return fmt.Errorf("spool: cannot store the acknowledged position: %w", err)
	}
	return nil
}

const (
	keepHandouts = 64      // handouts kept for reuse
	keepBytes    = 8 << 20 // limit of the memory of these handouts, in bytes
)

// handouts contains the batches that are handed out and not acknowledged, and memory for later
// batches. In the steady state, reading allocates nothing.
type handouts struct {
	list []*handout // oldest first
	free []*handout
}

// spare returns an unused handout. If possible, it reuses the memory of an acknowledged one.
func (h *handouts) spare() *handout {
	n := len(h.free)
	if n == 0 {
		return new(handout)
	}
	o := h.free[n-1]
	h.free = h.free[:n-1]
	return o
}

// recycle removes the first n batches from the list and keeps some of their memory. The caller of
// Next must no longer read them.
func (h *handouts) recycle(n int) {
	kept := 0
	for _, o := range h.free {
		kept += o.bytes()
	}
	for _, o := range h.list[:n] {
		if o.batch.Reset(); cap(o.batch.Runs) > 1 { // the handout refers to batches that were combined with it
			o.batch.Runs = nil
		}
		if kept += o.bytes(); len(h.free) < keepHandouts && kept <= keepBytes {
			h.free = append(h.free, o)
		}
	}
	h.list = slices.Delete(h.list, 0, n)
}
