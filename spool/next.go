package spool

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/forebay-log/forebay/batch"
)

// reader hands batches out and settles them.
type reader struct {
	queue  *queue
	dir    *directory
	cursor *cursor

	// mu is held while batches are handed out or settled. It guards the rest, and the cursor.
	mu    sync.Mutex
	seg   *segment // the open one
	open  segmentReader
	fails int // failed reads in a row
	out   handouts
	moved []*segment // late segments that are settled further than their name states
}

// giveUpAfter is the number of failed reads at one place after which the place counts as damaged. A
// bad sector stays bad, and must not delay the batches after it.
const giveUpAfter = 3

// joinMost is the maximum number of batches that NextUpTo adds to one.
const joinMost = 256

// next is Spool.NextUpTo.
func (r *reader) next(bytes, records int) (b *batch.Batch, seq uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if r.queue.isClosed() {
			return nil, 0, errClosed
		}
		g, size, gap := r.queue.pick(len(r.out.list) > 0)
		if g == nil {
			return nil, 0, io.EOF
		}
		if gap.seq > 0 {
			r.out.add(&handout{through: gap, gap: true})
		}
		o := r.out.spare()
		err := r.load(g, size, o)
		if err == nil {
			return &o.batch, r.join(g, size, o, bytes, records), nil
		}
		r.out.release(o)
		if err := r.setback(g, err); err != nil {
			return nil, 0, err
		}
	}
}

// join adds to the batch of o, the last one handed out, those that follow it in g and fit. It
// returns the number of the last. A batch that cannot be read is left for the next call.
func (r *reader) join(g *segment, size int64, o *handout, bytes, records int) (seq uint64) {
	seq = o.through.seq - 1
	for range joinMost {
		var h frameHeader
		if o.batch.Len() >= records || r.queue.over(g) || r.open.frames.header(&h) != nil || h.origin != o.origin ||
			int64(h.payload) > int64(bytes-o.batch.Bytes()) || int64(h.entries) > int64(records-o.batch.Len()) {
			return seq
		}
		more := r.out.spare()
		if r.load(g, size, more) != nil {
			r.out.release(more)
			return seq
		}
		for _, run := range more.batch.Runs {
			o.batch.Add(run)
		}
		seq = more.through.seq - 1
	}
	return seq
}

// load reads the next batch, which is in g, into o and hands it out.
func (r *reader) load(g *segment, size int64, o *handout) error {
	if r.seg != g {
		r.closeFile()
		if err := r.open.open(r.dir.fs, r.dir.path, g.name, &g.segmentHeader, size, r.queue.opt); err != nil {
			return err
		}
		r.seg = g
		if err := r.open.skipTo(r.queue.nextToRead().seq); err != nil {
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
	r.queue.handOut(o.through)
	r.out.add(o)
	return nil
}

// setback deals with a failed load. It returns an error for the caller of Next
// if that should be tried again, and nil if the segment is given up.
func (r *reader) setback(g *segment, err error) error {
	off, opened := int64(0), r.seg == g
	if opened {
		off = r.open.frames.off
	}
	r.closeFile() // begin at the segment's start, as after any doubt
	switch {
	case isNotExist(err):
		err = errMissing
	case err == io.EOF, err == errTorn:
		err = errTruncated // there should be more
	}
	if !damaged(err) {
		r.fails++
		if r.fails < giveUpAfter || !opened {
			return fmt.Errorf("spool: cannot read %s: %w", g.name, err)
		}
	}
	r.fails = 0
	r.queue.spoil(g, off, cause(err))
	return nil
}

// closeFile closes the open segment.
func (r *reader) closeFile() {
	if r.seg != nil {
		r.open.close()
		r.seg = nil
	}
}

// rewind is Spool.Rewind.
func (r *reader) rewind() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out.forget()
	r.closeFile()
	r.queue.rewind()
}

// ack is Spool.Ack.
func (r *reader) ack(seq uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, err := r.queue.settle(r.out.list, seq)
	if n == 0 {
		return err
	}
	for _, o := range r.out.list[:n] {
		if o.gap {
			continue
		}
		r.cursor.noteSettled(o.origin, o.slots)
		if o.seg.lane == late && !slices.Contains(r.moved, o.seg) {
			r.moved = append(r.moved, o.seg)
		}
	}
	r.out.recycle(n)
	err = r.cursor.write(r.queue.position())
	err = errors.Join(err, r.noteLate())
	if r.queue.finished(r.seg) {
		r.closeFile() // some systems delete no open file
	}
	r.queue.sweep()
	if err != nil {
		return fmt.Errorf("spool: cannot store the acknowledged position: %w", err)
	}
	return nil
}
