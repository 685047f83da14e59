package loki

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"testing"
	"time"

	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
	"github.com/forebay-log/forebay/internal/testkit/race"
)

// The error type thrown has a stack. It can wrap another error of this type with a different stack.
type thrown struct {
	text  string
	pcs   []uintptr
	inner error
}

func (e *thrown) Error() string         { return e.text }
func (e *thrown) Unwrap() error         { return e.inner }
func (e *thrown) StackTrace() []uintptr { return e.pcs }

// Stacks are written without allocations in every form. In this test, 250 errors contain 10,000
// different frames: each error has 20 frames and wraps an error with 20 frames.
func TestManyStacksDoNotAllocate(t *testing.T) {
	race.Skip(t)
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection would empty the pools
	pcs := testkit.Frames(10_000)
	var recs []encode.Record
	for i := 0; i < len(pcs); i += 40 {
		err := &thrown{"operation failed", pcs[i : i+20], &thrown{"connection refused", pcs[i+20 : i+40], nil}}
		recs = append(recs, encode.Record{Time: time.Now(), Level: slog.LevelError, Message: fmt.Sprint("operation ", i), Attrs: []slog.Attr{slog.Int("id", i), slog.Any("err", err)}})
	}
	for _, c := range []Config{
		{Line: Line{Errors: "object"}}, {Line: Line{Errors: "exception"}}, {Line: Line{Errors: "chain"}}, {Wire: wireJSON, Line: Line{Errors: "exception"}}, {MetadataAll: true, Line: Line{Errors: "object"}}, {Line: Line{Errors: "chain", Body: bodyLogfmt}},
	} {
		scope := sinkFor(t, new(peer), c).Encoder().Scope()
		dst := make([]byte, 0, 64<<10)
		if n := allocs.PerRun(3, func() {
			for i := range recs {
				var err error
				if dst, _, err = scope.Append(dst[:0], &recs[i]); err != nil {
					t.Fatal(err)
				}
			}
		}); n > 5 { // other goroutines allocate occasionally
			t.Errorf("%s %s %s: %v allocations for %d records", c.Line.Errors, c.Wire, c.Line.Body, n, len(recs))
		}
	}
}
