package fluent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/spool"
)

// kept is what a Sink keeps on disk, as its Config names it.
type kept struct {
	spool    *spool.Spool            // nil: none
	letters  *deliver.DeadLetterFile // nil: none
	fallback *os.File                // nil: none
}

// open opens what c names and puts it into o.
func (k *kept) open(c *resolved, o *deliver.Options) (err error) {
	defer func() {
		if err != nil {
			k.close()
		}
	}()
	if c.FallbackFile != "" {
		if k.fallback, err = os.OpenFile(c.FallbackFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
			return fmt.Errorf("fluent: cannot open Config.FallbackFile: %w", err)
		}
		o.Handler = deliver.JSONLines(k.fallback)
	}
	if c.DeadLetterFile != "" {
		if k.letters, err = deliver.OpenDeadLetterFile(c.DeadLetterFile, c.Name); err != nil {
			return fmt.Errorf("fluent: cannot open Config.DeadLetterFile: %w", err)
		}
		o.DeadLetter = k.letters
	}
	if c.SpoolDir != "" {
		k.spool, err = spool.Open(c.SpoolDir, &spool.Options{
			Name: c.Name, MaxBytes: c.SpoolBytes, Sync: c.spoolSync, Streams: Tags(), Codec: CodecFor, OnEvent: c.OnError,
		})
		if err != nil {
			return fmt.Errorf("fluent: cannot open Config.SpoolDir: %w", err)
		}
		o.Spill = k.spool
	}
	return nil
}

// close closes what open opened. The engine must be closed.
func (k *kept) close() error {
	var errs [3]error
	if k.spool != nil {
		errs[0] = k.spool.Close()
	}
	if k.letters != nil {
		errs[1] = k.letters.Close()
	}
	if k.fallback != nil {
		errs[2] = k.fallback.Close()
	}
	return errors.Join(errs[:]...)
}

// CodecFor returns the codec of what an earlier process has stored: that of
// Forward entries, or of package encode; nil if the content type is unknown. It
// is of the form that spool.Options.Codec wants.
func CodecFor(contentType string, _ uint32) batch.Codec {
	if contentType == ContentType {
		return Codec()
	}
	c, _ := encode.CodecFor(contentType)
	return c
}

// keepGrace is how much longer than its context Close takes at most where there
// is a spool: to put what the server did not take there.
const keepGrace = 500 * time.Millisecond

// until returns the context of the end: when ctx ends the engine stops trying,
// and what is left of the time is for the spool.
func (s *Sink) until(ctx context.Context) (context.Context, context.CancelFunc) {
	if !s.spills {
		return ctx, func() {}
	}
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stopTimer := func() {}
	if deadline, ok := ctx.Deadline(); ok {
		if soon := time.Now().Add(keepGrace); deadline.Before(soon) {
			deadline = soon
		}
		var withDeadline context.Context
		withDeadline, stopTimer = context.WithDeadline(longer, deadline)
		longer = withDeadline
	}
	stop := context.AfterFunc(ctx, func() {
		s.engine.Drain(time.Now())
		time.AfterFunc(keepGrace, func() { cancel(context.Cause(ctx)) })
	})
	return longer, func() { stop(); stopTimer(); cancel(nil) }
}
