// Package lines splits a stream into lines of bounded length.
package lines

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// A TooLongError stands for a line that was skipped because it is too long.
type TooLongError struct {
	// Bytes is the length of the line in the stream, its end included.
	Bytes int64
	// Max is the longest that is allowed.
	Max int
}

func (e *TooLongError) Error() string {
	return fmt.Sprintf("a line of %d bytes is longer than the %d allowed", e.Bytes, e.Max)
}

// A Reader reads lines, byte for byte. It is not for concurrent use.
//
// A line ends after '\n', which belongs to it, or at the end of the stream if
// anything came after the last '\n'. Nothing else is special: not '\r', NUL or
// bytes that are no UTF-8.
type Reader struct {
	src io.Reader
	max int

	buf        []byte
	start, end int   // buf[start:end] is read and not returned
	seen       int   // buf[start:start+seen] holds no '\n'
	err        error // of the source, returned when buf is empty
	offset     int64
}

// firstBuf is the size of the buffer as long as no line needs more: twice what a
// pipe holds on Linux.
const firstBuf = 128 << 10

// New returns a Reader of the lines of src, none of which is longer than max
// bytes without its end ('\n' or '\r' and '\n').
//
// However long a line is, the Reader needs no more memory than 128 KiB or twice
// max, whichever is more.
func New(src io.Reader, max int) *Reader { return &Reader{src: src, max: max} }

// Offset returns the number of bytes of all lines returned or skipped.
func (r *Reader) Offset() int64 { return r.offset }

// Next returns the next line. It is valid until Next is called again.
//
// A line that is too long is read to its end, without being kept, and reported as
// a [*TooLongError]; the next call goes on behind it. When the source fails,
// or ends, what came before is returned first, then the source's error.
func (r *Reader) Next() ([]byte, error) {
	for {
		if i := bytes.IndexByte(r.buf[r.start+r.seen:r.end], '\n'); i >= 0 {
			return r.take(r.seen+i+1, true)
		}
		r.seen = r.end - r.start
		if r.seen > r.max+1 { // even if the next byte were '\n'
			return nil, r.skip()
		}
		if r.err != nil {
			if r.seen == 0 {
				return nil, r.err
			}
			return r.take(r.seen, false)
		}
		r.fill()
	}
}

// take returns the first n bytes as a line unless it is too long.
func (r *Reader) take(n int, ended bool) ([]byte, error) {
	line := r.buf[r.start : r.start+n : r.start+n]
	r.start, r.seen = r.start+n, 0
	r.offset += int64(n)
	if n > r.max {
		text := line
		if ended {
			text = bytes.TrimSuffix(line[:n-1], []byte{'\r'})
		}
		if len(text) > r.max {
			return nil, &TooLongError{Bytes: int64(n), Max: r.max}
		}
	}
	return line, nil
}

// skip drops what is in the buffer and everything up to the next '\n'.
func (r *Reader) skip() error {
	n := int64(0)
	for {
		i := bytes.IndexByte(r.buf[r.start:r.end], '\n')
		if i >= 0 {
			n += int64(i + 1)
			r.start += i + 1
			break
		}
		n += int64(r.end - r.start)
		r.start, r.end = 0, 0
		if r.err != nil {
			break
		}
		r.fill()
	}
	r.seen = 0
	r.offset += n
	return &TooLongError{Bytes: n, Max: r.max}
}

// fill reads once into the buffer, after making room.
func (r *Reader) fill() {
	if r.start > 0 && (r.start == r.end || r.end == len(r.buf)) {
		r.end = copy(r.buf, r.buf[r.start:r.end])
		r.start = 0
	}
	if r.end == len(r.buf) {
		grown := make([]byte, max(firstBuf, min(2*len(r.buf), 2*(r.max+2))))
		copy(grown, r.buf[:r.end])
		r.buf = grown
	}
	for range 100 {
		n, err := r.src.Read(r.buf[r.end:])
		r.end += n
		if err != nil {
			r.err = err
			return
		}
		if n > 0 {
			return
		}
	}
	r.err = io.ErrNoProgress
}

// IsTooLong reports whether err stands for a line that was skipped.
func IsTooLong(err error) bool {
	var e *TooLongError
	return errors.As(err, &e)
}
