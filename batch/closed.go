package batch

import "errors"

// ErrClosed is wrapped by the error of a write to an output that is closed. Such
// a record was not accepted: it is refused and counted as such, outside the
// [Account] of the output.
var ErrClosed = errors.New("closed")
