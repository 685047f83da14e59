//go:build linux || darwin

package deliver_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

// The circuit probes with the first records of a batch, and the destination answers Gone, so these
// records are dropped. A later session accepts the rest of the batch. The next process does not
// deliver the dropped records, although the first process left the whole batch on disk.
func TestDroppedAsGoneIsNotDeliveredLater(t *testing.T) {
	for _, on := range []string{"crash-safe slabs", "spool"} {
		t.Run(on, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				var got []string
				calls := 0
				answers := []batch.Outcome{ // the first answer opens the circuit
					batch.FailedOutcome(testkit.ErrDown),
					{Open: batch.All(), Why: testkit.ErrDown, Advice: batch.Gone},
					{},
				}
				open := func() *deliver.Output {
					o := &deliver.OutputOptions{
						Slab:    slab.Options{FlushInterval: time.Millisecond},
						Deliver: deliver.Options{Breaker: &deliver.BreakerOptions{Failures: 1, OpenMin: time.Millisecond, OpenMax: time.Millisecond, ProbeRecords: 2, Successes: 9}},
					}
					if on == "spool" {
						o.SpoolDir = dir
					} else {
						o.CrashDir = dir
					}
					return mustOutput(t, deliver.SendFunc(deliver.Traits{}, func(_ context.Context, b *batch.Batch) batch.Outcome {
						answer := batch.FailedOutcome(testkit.ErrDown)
						if calls++; calls <= len(answers) {
							answer = answers[calls-1]
						}
						if answer.Open.Empty() {
							for _, r := range b.All() {
								got = append(got, strings.TrimSpace(string(r.Data)))
							}
						}
						return answer
					}), o)
				}
				out := open()
				for n := range 9 {
					fmt.Fprintln(out, n)
				}
				time.Sleep(time.Minute)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				rep, _ := out.Shutdown(ctx)
				calls, answers = 0, make([]batch.Outcome, 100)
				next, err := open().Shutdown(t.Context())
				if err != nil || rep.Check() != nil || next.Check() != nil {
					t.Errorf("%v; %v; %v", err, rep.Account, next.Account)
				}
				first := slices.Clone(got)
				slices.Sort(first)
				first = slices.Compact(first)
				var order []string
				for _, n := range got {
					if !slices.Contains(order, n) {
						order = append(order, n)
					}
				}
				if !slices.Equal(order, first) || rep.Dropped[batch.Failed] == 0 {
					t.Errorf("got records %v; account %v, then %v", got, rep.Account, next.Account)
				}
			})
		})
	}
}
