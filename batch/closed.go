package batch

import "errors"

// A write to a closed output returns an error that wraps ErrClosed. The record is not accepted, and
// not part of the [Account] of the output. It is counted separately, as refused.
var ErrClosed = errors.New("closed")
