package forebay

import (
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/slab"
)

// The first drop of a series is reported at once. While the series lasts, one event per 10 s has the
// number of drops since the previous event. The event that ends the series has the total by reason.
func TestDropsAreReportedWithNumbers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var events eventLog
		release := make(chan struct{})
		let := sync.OnceFunc(func() { close(release) })
		defer let()
		w := writerFunc(func(p []byte) (int, error) {
			<-release
			return len(p), nil
		})
		out, err := deliver.NewOutput(deliver.ToWriter(w), &deliver.OutputOptions{
			Name: "app", OnError: events.add,
			Slab: slab.Options{SlabBytes: 4096, SlabCount: 2, MaxRecord: 1000, WhenFull: slab.DropNewest()},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		record := strings.Repeat("x", 999) + "\n"
		for out.Account().Dropped.Total() == 0 {
			_, _ = io.WriteString(out, record)
		}
		want := []string{"app: drop: lost before delivery: full=1"}
		wantEvents := func() {
			t.Helper()
			synctest.Wait()
			if got := events.texts(); !slices.Equal(got, want) {
				t.Fatalf("events %q, want %q", got, want)
			}
		}
		wantEvents()

		time.Sleep(time.Second / 2) // no record arrives at the end of an interval
		for range 25 {
			_, _ = io.WriteString(out, record)
			time.Sleep(time.Second)
		}
		want = append(want, "app: drop: lost before delivery: full=10", "app: drop: lost before delivery: full=10")
		wantEvents()

		_, _ = io.WriteString(out, "too long "+record)
		time.Sleep(30 * time.Second)
		want = append(want, "app: drop: lost before delivery: full=5 oversize=1 (6 records)", "app: drop-end: full=26 oversize=1 (27 records)")
		wantEvents()

		_, _ = io.WriteString(out, record) // another series, which Close ends
		_, _ = io.WriteString(out, record)
		let()
		if err := out.Close(); err != nil {
			t.Error(err)
		}
		want = append(want, "app: drop: lost before delivery: full=1", "app: drop-end: full=2")
		wantEvents()
	})
}
