//go:build !linux && !darwin

package deliver

import "errors"

const haveWritev = false

// Writev is never called: haveWritev is false.
func (v fileVec) Writev([][]byte) (int64, error) { return 0, errors.ErrUnsupported }
