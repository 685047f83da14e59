package fluent

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/testkit"
)

// From Post to the dead letter: one record ends every connection, all others
// arrive in order.
func TestPoisonGoesToTheDeadLetter(t *testing.T) {
	const bad = 321
	var r received
	f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
		for {
			m, err := c.Next()
			if err != nil {
				return
			}
			if slices.ContainsFunc(m.Entries, func(e []byte) bool { return number1(e) == bad }) {
				return
			}
			r.add(m)
			c.Ack(m.Chunk)
		}
	}}
	var letters bytes.Buffer
	l := newTestLogger(t, Config{
		Servers: []string{listen(t, f)}, DeadLetter: deliver.DeadLetters(&letters, "forward"),
		Retry: &deliver.RetryOptions{Min: time.Millisecond, Max: 2 * time.Millisecond},
	})
	for i := range 1000 {
		if err := l.Post("poison.tag", map[string]any{"n": i}); err != nil {
			t.Fatal(err)
		}
	}
	rep := closeLogger(t, l)
	if rep.Delivered != 999 || rep.Dropped[batch.Poison] != 1 {
		t.Errorf("%s", rep.Account)
	}
	if text := letters.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, `"tag":"poison.tag"`) || !strings.Contains(text, `{"n":321}`) {
		t.Errorf("dead letters: %s", text)
	}
	// The first copies of all but the bad one are in order.
	seen := map[int]bool{}
	var first []int
	for _, n := range r.get("poison.tag") {
		if !seen[n] {
			seen[n] = true
			first = append(first, n)
		}
	}
	want := slices.DeleteFunc(seq(0, 1000), func(n int) bool { return n == bad })
	if !slices.Equal(first, want) {
		t.Errorf("%d records arrived, in order: %v", len(first), slices.IsSorted(first))
	}
}
