package fluent

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// A job is one batch in flight. The goroutine that called Send writes the frames. If the field
// writing is true when the outcome is known, that goroutine also reports it. Otherwise the reader
// reports it.
type job struct {
	b       *batch.Batch
	lay     layout
	waiters []recordWaiter // callers of Post that wait for records of b
	vec     [][]byte       // parts of the frames, for writev
	out     net.Buffers    // the part of vec that is not yet written

	// session.mu guards the following fields.
	open    int  // number of frames without an acknowledgement
	writing bool // the goroutine that called Send, not the reader, reports the outcome
}

// The type sent is a frame that has been written or is about to be written. The reader waits for
// its acknowledgement.
type sent struct {
	j     *job // nil after the acknowledgement
	frame int  // index in j.lay.frames
	id    chunkID
	at    time.Time // start of its AckTimeout
}

// write writes the frames of j with indexes in [from, to) within timeout, and returns the number of
// bytes written. If the connection is a kernel socket and the batch has only one tag, the records
// are written with writev directly from the memory of the batch. Otherwise they are copied into one
// buffer.
func (c *conn) write(w *framer, j *job, from, to int, timeout time.Duration) (int64, error) {
	c.writeUntil(time.Now().Add(timeout))
	var n int64
	var err error
	if c.vectors && w.zip == nil && j.lay.order == nil {
		n, err = c.writeVectors(w, j, from, to)
	} else {
		var k int
		k, err = w.writeCopies(&j.lay, j.lay.frames[from:to], j.b, c.nc.Write)
		n = int64(k)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("%w within %s", errUnread, timeout)
	}
	return n, err
}

// writeVectors writes frames with writev, without copying the records.
func (c *conn) writeVectors(w *framer, j *job, from, to int) (int64, error) {
	frames := j.lay.frames[from:to]
	size := 0
	for i := range frames {
		size += headBytes + len(frames[i].tag)
	}
	lent, _ := scratch.Get(size)
	defer scratch.Put(lent)
	// All heads and tails fit into buf, so append does not move the memory to which j.vec refers.
	buf := lent[:0]
	j.vec = j.vec[:0]
	add := func(p []byte) { j.vec = append(j.vec, p) }
	for i := range frames {
		f := &frames[i]
		at := len(buf)
		buf = w.head(buf, f, f.bytes)
		add(buf[at:len(buf):len(buf)])
		w.pieces(&j.lay, j.b, f, add)
		at = len(buf)
		buf = w.tail(buf, f)
		add(buf[at:len(buf):len(buf)])
	}
	j.out = j.vec // a copy of the slice header, because WriteTo consumes it
	n, err := j.out.WriteTo(c.nc)
	clear(j.vec[:cap(j.vec)]) // so that vec does not keep the memory of the batch alive
	return n, err
}
