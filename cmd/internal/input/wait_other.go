//go:build !unix

package input

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/intake"
)

// inputWait reads on a separate goroutine, because this system cannot interrupt a read. At the end,
// the program does not wait for a read in progress, and the data of the read is lost.
type inputWait struct {
	chunks chan []byte // data that was read; closed after the first error
	free   chan []byte // unused buffers
	rest   []byte      // part of buf that Read has not yet returned
	buf    []byte      // last value received from chunks
	err    error       // the first error; set before chunks is closed
}

// init starts the goroutine that reads f.
func (iw *inputWait) init(f *os.File) error {
	iw.chunks, iw.free = make(chan []byte), make(chan []byte, 2)
	iw.free <- make([]byte, 64<<10)
	iw.free <- make([]byte, 64<<10)
	go func() {
		defer close(iw.chunks)
		for buf := range iw.free {
			n, err := f.Read(buf[:cap(buf)])
			if n > 0 {
				iw.chunks <- buf[:n]
			}
			if err != nil {
				iw.err = err
				return
			}
		}
	}()
	return nil
}

// wakeUp does nothing, because the method await receives from the channel that Stop closes.
func (*inputWait) wakeUp() {}

// begin does nothing, because this system cannot interrupt reads. On other systems it sets the
// position of the first Read.
func (*inputWait) begin(int64) {}

func (in *input) Close() { in.Stop() }

func (in *input) Read(p []byte) (int, error) {
	if err := in.await(nil); err != nil {
		return 0, err
	}
	n := copy(p, in.rest)
	in.rest = in.rest[n:]
	return n, nil
}

// wait waits until data arrives, Stop is called or d has passed. It reports whether Read would
// return without blocking.
func (in *input) wait(d time.Duration) bool { return in.await(time.After(d)) != errLate }

// errLate reports that no data has arrived in time.
var errLate = errors.New("late")

// await waits for data. If late receives a value first, await returns errLate.
func (in *input) await(late <-chan time.Time) error {
	if len(in.rest) > 0 {
		return nil
	}
	if in.buf != nil {
		in.free <- in.buf
		in.buf = nil
	}
	select {
	case <-in.stopped:
		return intake.ErrStopped
	case <-late:
		return errLate
	case chunk, ok := <-in.chunks:
		if !ok {
			if in.err == nil {
				in.err = io.EOF
			}
			return in.err
		}
		in.buf, in.rest = chunk, chunk
		return nil
	}
}
