package deliver

import (
	"context"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/outputhook"
	"github.com/forebay-log/forebay/internal/slablog"
)

// init sets the functions that only packages of this repository use.
func init() {
	outputhook.Memory = func(o any) *slablog.Writer { return o.(*Output).w }
	outputhook.Ended = func(o any) <-chan struct{} { return o.(*Output).outlet.end.ended }
	outputhook.Drain = func(o any, deadline time.Time) { o.(*Output).outlet.Drain(deadline) }
	outputhook.CloseTimeout = func(o any) time.Duration { return o.(*Output).opt.CloseTimeout }
	outputhook.Refuse = func(o any, p []byte, m batch.Meta, r batch.Reason, cause error) error {
		return o.(*Output).refuse(p, m, r, cause)
	}
	outputhook.SetErrorHandler = func(o, h any) { o.(*Output).outlet.setHandler(h.(ErrorHandler)) }
	outputhook.SetSpill = func(o, s any) { o.(*Options).spill = s.(spill) }
	outputhook.Direct = func(dest any) (func(context.Context, *batch.Batch) batch.Outcome, func(context.Context) error) {
		return newDirect(dest.(Destination))
	}
}
