package deliver_test

import (
	"context"
	"regexp"
	"runtime"
	"testing"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/bubble"

	"testing/synctest"
)

// ours matches the end of the stack of a goroutine that package slab or deliver has started.
var ours = regexp.MustCompile(`(?m)^created by github\.com/forebay-log/forebay/(slab|deliver)\.`)

// An output has one goroutine and, unless the loop makes the calls of the driver, one more for its
// session.
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
				buf := make([]byte, 1<<20)
				count := func() int { return len(ours.FindAll(buf[:runtime.Stack(buf, true)], -1)) }
				before := count()
				out := mustOutput(t, deliver.SendFunc(deliver.Traits{Inline: c.inline}, func(context.Context, *batch.Batch) batch.Outcome {
					return batch.Outcome{}
				}), &c.o)
				synctest.Wait()
				if n := count() - before; n != 1 {
					t.Errorf("before the first record: %d goroutines, want 1", n)
				}
				for range 1000 {
					_, _ = out.Write([]byte("a record\n"))
				}
				if err := out.Flush(t.Context()); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				if n := count() - before; n != c.want {
					t.Errorf("with a session: %d goroutines, want %d:\n%s", n, c.want, buf[:runtime.Stack(buf, true)])
				}
				if err := out.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
