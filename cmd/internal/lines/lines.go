// Package lines splits a stream into lines of bounded length.
package lines

import (
	"errors"
	"fmt"
	"io"

	"github.com/forebay-log/forebay/cmd/internal/charset"
)

// A TooLongError reports a line that was skipped because it is too long.
type TooLongError struct {
	// Bytes is the length of the line in the stream, its end included.
	Bytes int64
	// Max is the longest that is allowed.
	Max int
}

func (e *TooLongError) Error() string {
	return fmt.Sprintf("a line of %d bytes exceeds the limit of %d", e.Bytes, e.Max)
}

// A Reader reads lines. It is not for concurrent use.
//
// A line ends after '\n', which belongs to it, or at the end of the stream if
// data follows the last '\n'. A byte order mark at the start of the stream is
// skipped. No other character is special, neither '\r' nor NUL, and bytes that are not valid
// UTF-8 are not changed.
type Reader struct {
	// BeforeRead, if it is set, is called before each Read of the stream, which may wait.
	BeforeRead func()
	// Charset is the charset of the stream. Lines are returned in UTF-8. Default: UTF-8.
	Charset *charset.Charset

	src io.Reader
	max int

	buf        []byte
	start, end int   // buf[start:end] is read and not returned
	seen       int   // buf[start:start+seen] has no newline
	err        error // of the source, returned when buf is empty
	offset     int64
	long       int64 // bytes of the line that is being skipped; 0: none
	decoder    charset.Decoder
	keeper     Keeper
}

// A Keeper is a source that keeps the data that Read has returned until Settle reports that the
// Reader has finished its lines.
type Keeper interface {
	io.Reader
	// Settle is called before each Read: everything before offset is settled. inLong reports that
	// offset is within a line that is too long.
	Settle(offset int64, inLong bool)
	// InLongLine reports whether the source begins within such a line.
	InLongLine() bool
}

// firstBuf is the size of the buffer as long as no line needs more: twice what a
// pipe holds on Linux.
const firstBuf = 128 << 10

// New returns a Reader of the lines of src, none of which is longer than max bytes without its end
// ('\n' or '\r' and '\n'), in the stream or in UTF-8.
//
// However long a line is, the Reader needs no more memory than 128 KiB or twice max, whichever is
// more: see [BufferBytes]. If src is a [Keeper], its Settle is called.
func New(src io.Reader, max int) *Reader {
	r := &Reader{src: src, max: max}
	if k, ok := src.(Keeper); ok {
		r.keeper = k
		if k.InLongLine() {
			r.long = 1 // one at least
		}
	}
	return r
}

// BufferBytes returns how much a Reader of lines up to longest bytes holds at most.
func BufferBytes(longest int) int { return max(firstBuf, 2*(longest+2)) }

// grow returns the size of the buffer after one of have bytes.
func grow(have, longest int) int { return max(firstBuf, min(2*have, 2*(longest+2))) }

// Offset returns the number of bytes in the stream of all lines returned or skipped.
func (r *Reader) Offset() int64 { return r.offset }

// Next returns the next line. It is valid until Next is called again.
//
// A line that is too long is skipped and reported as a [*TooLongError]; the next call returns the
// line after it. When the source fails or ends, the data before that is returned first, then the
// error of the source.
func (r *Reader) Next() ([]byte, error) {
	if r.long > 0 {
		return nil, r.skip()
	}
	for {
		if r.offset == 0 {
			var mark int
			r.Charset, mark = r.Charset.Detect(r.buf[r.start:r.end])
			if mark > 0 {
				r.start, r.seen, r.offset = r.start+mark, 0, int64(mark)
			}
		}
		if n := r.lineEnd(r.seen); n > 0 {
			return r.take(r.seen + n)
		}
		r.seen = int(r.Charset.RoundDown(int64(r.end - r.start)))
		if r.seen >= r.max+2*r.Charset.Unit() { // even if the next character were '\n'
			return nil, r.skip()
		}
		if r.err != nil {
			if r.end == r.start {
				return nil, r.err
			}
			return r.take(r.end - r.start)
		}
		r.fill()
	}
}

// lineEnd returns the number of bytes after the skipped ones of the unread buffer, up to and
// including the next newline; 0: there is no newline.
func (r *Reader) lineEnd(skipped int) int {
	return r.Charset.LineEnd(r.buf[r.start+skipped:r.end], r.offset+int64(skipped))
}

// take returns the first n bytes of the buffer as a line, or a TooLongError.
func (r *Reader) take(n int) ([]byte, error) {
	line := r.buf[r.start : r.start+n : r.start+n]
	r.start, r.seen = r.start+n, 0
	r.offset += int64(n)
	text, ok := r.decoder.Line(r.Charset, line, r.max)
	if !ok {
		return nil, &TooLongError{Bytes: int64(n), Max: r.max}
	}
	return text, nil
}

// skip drops the buffer and everything up to the next newline.
func (r *Reader) skip() error {
	for {
		n := r.lineEnd(0)
		ended := n > 0
		switch {
		case ended:
		case r.err != nil:
			n = r.end - r.start
		default: // the position stays at the beginning of a code unit
			n = int(r.Charset.RoundDown(int64(r.end - r.start)))
		}
		r.start += n
		r.offset += int64(n)
		r.long += int64(n)
		if ended || r.err != nil {
			break
		}
		r.fill()
	}
	err := &TooLongError{Bytes: r.long, Max: r.max}
	r.seen, r.long = 0, 0
	return err
}

// fill reads once into the buffer, after making room.
func (r *Reader) fill() {
	if r.BeforeRead != nil {
		r.BeforeRead()
	}
	if r.keeper != nil {
		r.keeper.Settle(r.offset, r.long > 0)
	}
	if r.start > 0 && (r.start == r.end || r.end == len(r.buf)) {
		r.end = copy(r.buf, r.buf[r.start:r.end])
		r.start = 0
	}
	if r.end == len(r.buf) {
		grown := make([]byte, grow(len(r.buf), r.max))
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

// IsTooLong reports whether err is a [*TooLongError].
func IsTooLong(err error) bool {
	var e *TooLongError
	return errors.As(err, &e)
}
