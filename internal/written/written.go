// Package written says what to believe of an io.Writer.
package written

import "fmt"

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
