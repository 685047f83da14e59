//go:build !linux && !darwin

package slab

import "errors"

const haveWritev = false

// Writev is never called: haveWritev is false.
func (v fileVec) Writev([][]byte) (int64, error) { return 0, errors.ErrUnsupported }
