package batch

import "errors"

// ErrClosed is wrapped by the error of a write to a closed output. The record is not accepted. It
// is counted as refused, which is not part of the [Account] of the output.
var ErrClosed = errors.New("closed")
