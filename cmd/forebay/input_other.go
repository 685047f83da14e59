//go:build !unix

package main

import (
	"io"
	"os"
)

// inputWait is a goroutine that reads, because a read cannot be interrupted here.
// When the program stops, one that is under way is abandoned, and with it what it
// may still bring.
type inputWait struct {
	chunks chan []byte
	free   chan []byte
	rest   []byte
	buf    []byte
	err    error
}

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

func (*inputWait) wakeUp() {}

func (in *input) close() { in.stop() }

func (in *input) Read(p []byte) (int, error) {
	if len(in.rest) == 0 {
		if in.buf != nil {
			in.free <- in.buf
			in.buf = nil
		}
		select {
		case <-in.stopped:
			return 0, errStopped
		case chunk, ok := <-in.chunks:
			if !ok {
				if in.err == nil {
					in.err = io.EOF
				}
				return 0, in.err
			}
			in.buf, in.rest = chunk, chunk
		}
	}
	n := copy(p, in.rest)
	in.rest = in.rest[n:]
	return n, nil
}
