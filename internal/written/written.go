// Package written checks the results of writes and syncs.
package written

import (
	"errors"
	"fmt"
	"io"
	"syscall"
)

// MaxIdle is the number of consecutive calls of Write that may accept nothing without an error.
const MaxIdle = 8

// All passes p to w, in several calls of Write if w accepts only a part. After each call it adds
// the number of written bytes to done, because the next call may panic. All calls the function
// lied, which may be nil, for each invalid result that [Count] finds.
func All(w io.Writer, p []byte, done *int, lied func(error)) error {
	for idle := 0; len(p) > 0; {
		count, err := w.Write(p)
		n, lie, err := Count(int64(count), len(p), err)
		*done += n
		p = p[n:]
		if lie != nil && lied != nil {
			lied(lie)
		}
		if err != nil {
			return err
		}
		if n > 0 {
			idle = 0
		} else if idle++; idle == MaxIdle {
			return io.ErrNoProgress
		}
	}
	return nil
}

// CannotSync reports whether err, the error of a Sync, means that the file has no stable storage,
// like a terminal, a pipe or a socket.
func CannotSync(err error) bool {
	return errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.ENOTTY)
}

// Count interprets the results n and err of a Write of size bytes. done is the number of bytes that
// count as written. If n exceeds size, done is size, because writing again would not help, and lie
// describes the error. If n is negative, done is 0 and failure is not nil.
func Count(n int64, size int, err error) (done int, lie, failure error) {
	if n >= 0 && n <= int64(size) {
		return int(n), nil, err
	}
	lie = fmt.Errorf("destination returned an invalid count %d for a write of %d bytes", n, size)
	if n > 0 {
		return size, lie, err
	}
	if err == nil {
		err = lie
	}
	return 0, nil, err
}
