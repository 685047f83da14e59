package deliver

import (
	"context"
	"testing"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/testkit"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	child()
	goleak.VerifyTestMain(m)
}

// destOf returns a Destination whose Send and Close are those of sink, a destination of package
// testkit.
func destOf(sink interface {
	closer
	Send(context.Context, *batch.Batch) batch.Outcome
}) Destination {
	return struct {
		Destination
		closer
	}{SendFunc(Traits{}, sink.Send), sink}
}

// child is the main function of processes that a test kills. In all other processes it returns
// immediately.
var child = func() {}

// A sender is an outlet or the log in front of it.
type sender interface {
	Send(ctx context.Context, b *batch.Batch) error
}

// sendAll sends b, and again after each failure, until b is accepted or ctx ends.
func sendAll(t testing.TB, ctx context.Context, m *testkit.Model, s sender, b *batch.Batch) {
	t.Helper()
	for rest := b; rest != nil; {
		err := s.Send(ctx, rest)
		rest = m.Sent(rest, err)
		if rest != nil && ctx.Err() != nil {
			t.Fatalf("not settled when ctx ended: %d records: %v", rest.Len(), err)
		}
	}
}

// balance compares the account of s with the model and returns it.
func balance(t testing.TB, m *testkit.Model, s *outlet) batch.Account {
	t.Helper()
	a, err := m.Account(s.Account(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// lines returns a batch of n records of 32 bytes with the tickets 1 to n.
func lines(n int) *batch.Batch { return new(testkit.Model).Batch(n, 32, batch.Meta{}) }
