//go:build !linux && !darwin

// Package vectors writes several buffers to a file in one system call.
package vectors

import (
	"errors"
	"os"
)

// Have reports whether this system has writev(2).
const Have = false

// Write returns an error. It must not be called if Have is false.
func Write(*os.File, [][]byte) (int64, error) { return 0, errors.ErrUnsupported }
