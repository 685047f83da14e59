// Package lines splits a stream into lines of bounded length.
package lines

import (
	"errors"
	"fmt"
	"io"

	"github.com/forebay-log/forebay/cmd/internal/charset"
)

// A TooLongError reports that a line was skipped because it is too long.
type TooLongError struct {
	// Bytes is the length of the line in the stream, including its newline.
	Bytes int64
	// Max is the maximum length of a line.
	Max int
}

func (e *TooLongError) Error() string {
	return fmt.Sprintf("a line of %d bytes exceeds the limit of %d", e.Bytes, e.Max)
}

// A Reader reads lines. It is not safe for concurrent use.
//
// A line includes the '\n' at its end. Only the last line of the stream may end without '\n'. A
// byte order mark at the start of the stream is skipped. '\r', NUL and bytes that are not valid
// UTF-8 have no special meaning.
type Reader struct {
	// BeforeRead, if not nil, is called before each Read of the stream. The Read may block.
	BeforeRead func()
	// Charset is the encoding of the stream. The Reader returns lines in UTF-8. Default: UTF-8.
	Charset *charset.Charset

	src io.Reader
	max int

	buf        []byte
	start, end int   // buf[start:end] contains the unread data
	seen       int   // number of bytes at the beginning of the unread data that contain no newline
	err        error // error of the source; Next returns it when the buffer is empty
	offset     int64
	long       int64 // number of skipped bytes of a line that is too long; 0 if no line is being skipped
	decoder    charset.Decoder
	keeper     Keeper
}

// A Keeper is a source that stores the data it has returned until the Reader calls Settle.
type Keeper interface {
	io.Reader
	// Settle is called before each Read. The Reader no longer needs the data before offset. inLong
	// reports that offset is within a line that is too long.
	Settle(offset int64, inLong bool)
	// InLongLine reports whether the data of the source begins within a line that is too long.
	InLongLine() bool
}

// firstBuf is the initial size of the buffer in bytes. It is twice the capacity of a pipe on Linux.
const firstBuf = 128 << 10

// New returns a Reader of the lines of src. A line may have at most max bytes, both in the stream
// and in UTF-8, without its newline ("\n" or "\r\n").
//
// The Reader needs at most 128 KiB or twice max bytes of memory, whichever is more, even for longer
// lines; see [BufferBytes]. If src is a [Keeper], the Reader calls its method Settle.
func New(src io.Reader, max int) *Reader {
	r := &Reader{src: src, max: max}
	if k, ok := src.(Keeper); ok {
		r.keeper = k
		if k.InLongLine() {
			r.long = 1 // the source no longer has the beginning of the line
		}
	}
	return r
}

// BufferBytes returns the maximum size of the buffer of a Reader. longest is the maximum length of
// its lines.
func BufferBytes(longest int) int { return max(firstBuf, 2*(longest+2)) }

// grow returns the size to which a buffer of size bytes is enlarged.
func grow(size, longest int) int { return max(firstBuf, min(2*size, 2*(longest+2))) }

// Offset returns the position in the stream after the last line that Next has returned or skipped.
func (r *Reader) Offset() int64 { return r.offset }

// Next returns the next line, which is valid until the next call.
//
// If the line is too long, Next skips it and returns a [*TooLongError]; the next call returns the
// line after it. If the source ends or fails, Next returns the remaining data, and in the following
// call the error of the source.
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
			return r.consume(r.seen + n)
		}
		r.seen = int(r.Charset.RoundDown(int64(r.end - r.start)))
		if r.seen >= r.max+2*r.Charset.Unit() { // the line is too long, because it has no newline up to here
			return nil, r.skip()
		}
		if r.err != nil {
			if r.end == r.start {
				return nil, r.err
			}
			return r.consume(r.end - r.start)
		}
		r.fill()
	}
}

// lineEnd searches for a newline in the unread data, beginning at the offset skipped. It returns
// the number of bytes from this offset up to and including the newline, or 0 if there is no
// newline.
func (r *Reader) lineEnd(skipped int) int {
	return r.Charset.LineEnd(r.buf[r.start+skipped:r.end], r.offset+int64(skipped))
}

// consume consumes the first n bytes of the unread data and returns them as a line. If the line is
// too long, it returns a TooLongError.
func (r *Reader) consume(n int) ([]byte, error) {
	line := r.buf[r.start : r.start+n : r.start+n]
	r.start, r.seen = r.start+n, 0
	r.offset += int64(n)
	text, ok := r.decoder.Line(r.Charset, line, r.max)
	if !ok {
		return nil, &TooLongError{Bytes: int64(n), Max: r.max}
	}
	return text, nil
}

// skip skips the rest of the current line, and reads more data if necessary. It returns a
// TooLongError.
func (r *Reader) skip() error {
	for {
		n := r.lineEnd(0)
		ended := n > 0
		switch {
		case ended:
		case r.err != nil:
			n = r.end - r.start
		default: // skip only complete code units
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

// fill calls Read once. If the buffer is full, it first enlarges the buffer.
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
