package batch

import "errors"

// ErrClosed is wrapped by the error of a write to a closed output. The record was not accepted: it
// is counted as refused, which is not part of the [Account] of the output.
var ErrClosed = errors.New("closed")
