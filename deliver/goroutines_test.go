package deliver_test

import (
	"context"
	"testing"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
)

// An output uses one goroutine. A session needs a second one, unless it answers within Send
// (inline) and there is no spool.
func TestGoroutinesOfAnOutput(t *testing.T) {
	for name, c := range map[string]struct {
		inline bool
		o      deliver.OutputOptions
		want   int
	}{
		"session":             {false, deliver.OutputOptions{}, 2},
		"inline":              {true, deliver.OutputOptions{}, 1},
		"session, with spool": {false, deliver.OutputOptions{SpoolDir: "spool"}, 2},
		"inline, with spool":  {true, deliver.OutputOptions{SpoolDir: "spool"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			if c.o.SpoolDir != "" {
				c.o.SpoolDir = t.TempDir()
			}
			bubble.Test(t, func(t *testing.T) {
				want := testkit.Goroutines(t)
				out := mustOutput(t, deliver.SendFunc(deliver.Traits{Inline: c.inline}, func(context.Context, *batch.Batch) batch.Outcome {
					return batch.Outcome{}
				}), &c.o)
				want("before the first record", 1)
				for range 1000 {
					_, _ = out.Write([]byte("a record\n"))
				}
				if err := out.Flush(t.Context()); err != nil {
					t.Error(err)
				}
				want("with a session", c.want)
				if err := out.Close(); err != nil {
					t.Error(err)
				}
				want("after Close", 0)
			})
		})
	}
}
