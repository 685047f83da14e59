package loki

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/bubble"
)

// Each dead letter contains the reason for its own record, even if the records of a batch have
// different reasons. A time beyond the range of an int64 is too new or too old.
func TestDeadLetterHasReasonOfItsRecord(t *testing.T) {
	day := 24 * time.Hour
	for name, tt := range map[string]struct {
		at   func(now time.Time) time.Time
		want string
	}{
		"an hour ahead": {func(now time.Time) time.Time { return now.Add(time.Hour) }, "further in the future than max_future"},
		"year 2300":     {func(time.Time) time.Time { return time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC) }, "further in the future than max_future"},
		"year 9999":     {func(time.Time) time.Time { return time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC) }, "further in the future than max_future"},
		"last month":    {func(now time.Time) time.Time { return now.Add(-30 * day) }, "older than max_age"},
		"year 1600":     {func(time.Time) time.Time { return time.Date(1600, 1, 1, 0, 0, 0, 0, time.UTC) }, "older than max_age"},
	} {
		for _, previous := range []string{"", "old", "new"} {
			bubble.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				deadLetters, events := map[string]string{}, []string(nil)
				h := handlerFor(t, new(peer), Config{}, forebay.OnError(func(e batch.Event) {
					mu.Lock()
					defer mu.Unlock()
					events = append(events, fmt.Sprint(e.Op, " ", e.Err))
				}), forebay.Delivery(func(o *deliver.OutputOptions) {
					o.Deliver.DeadLetter = deliver.ErrorHandlerFunc(func(cause error, b *batch.Batch) batch.Outcome {
						mu.Lock()
						defer mu.Unlock()
						for _, rec := range b.All() {
							for _, word := range []string{"subject", "other"} {
								if strings.Contains(string(rec.Data), word) {
									deadLetters[word] = cause.Error()
								}
							}
						}
						return batch.Outcome{}
					})
				}))
				handle := func(at time.Time, text string) {
					if err := h.Handle(context.Background(), slog.NewRecord(at, 0, text, 0)); err != nil {
						t.Error(err)
					}
				}
				now := time.Now()
				want := map[string]string{"subject": tt.want}
				switch previous {
				case "old":
					handle(now.Add(-20*day), "other")
					want["other"] = "older than max_age"
				case "new":
					handle(now.Add(2*time.Hour), "other")
					want["other"] = "further in the future than max_future"
				}
				handle(now, "good")
				handle(tt.at(now), "subject")
				if rep, err := h.Close(t.Context()); rep.Delivered != 1 || int(rep.Dropped[batch.Poison]) != len(want) {
					t.Errorf("%v %v", rep, err)
				}
				mu.Lock()
				defer mu.Unlock()
				for word, why := range deadLetters {
					if want[word] == "" || !strings.Contains(why, want[word]) {
						t.Errorf("%s after %q: the dead letter of %s has the cause %q", name, previous, word, why)
					}
				}
				if len(deadLetters) != len(want) {
					t.Errorf("%s after %q: got dead letters of %v", name, previous, maps.Keys(deadLetters))
				}
				if text := strings.Join(events, "\n"); !strings.Contains(text, want["subject"]) && previous == "" {
					t.Errorf("%s after %q: events %s", name, previous, text)
				}
			})
		}
	}
}
