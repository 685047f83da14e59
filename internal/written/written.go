// Package written says what to believe of an io.Writer, and of a file that is synced.
package written

import (
	"errors"
	"fmt"
	"io"
	"syscall"
)

// MaxIdle is how many times in a row a writer may take nothing and report no error.
const MaxIdle = 8

// All writes p to w, in several calls if w takes only parts. It adds to done the bytes
// that are written, at once, because the next Write may panic; and it tells lied, if
// that is not nil, of each lie that [Count] finds.
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

// CannotSync reports whether err, of a Sync, says that the file is of a kind that
// has no stable storage: a terminal, a pipe, a socket.
func CannotSync(err error) bool {
	return errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.ENOTTY)
}

// Count returns how many of size bytes a Write has written that returned n and
// err. More than there were means all of them: to send them again would not make
// the writer say anything else; lie tells of it. Fewer than none means none, and
// is an error.
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
