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

// destOf returns a Destination that answers as a sink of package testkit does, and closes
// with it.
func destOf(sink interface {
	closer
	Send(context.Context, *batch.Batch) batch.Outcome
}) Destination {
	return struct {
		Destination
		closer
	}{SendFunc(Traits{}, sink.Send), sink}
}

// child is the main function of processes that a test kills. It returns where this is
// none.
var child = func() {}

// A sender is an outlet, or the log in front of one.
type sender interface {
	Send(ctx context.Context, b *batch.Batch) error
}

// produce sends b and keeps it until it is settled.
func produce(t testing.TB, ctx context.Context, m *testkit.Model, s sender, b *batch.Batch) {
	t.Helper()
	for rest := b; rest != nil; {
		err := s.Send(ctx, rest)
		rest = m.Sent(rest, err)
		if rest != nil && ctx.Err() != nil {
			t.Fatalf("not settled when ctx ended: %d records: %v", rest.Len(), err)
		}
	}
}

// balance checks the account of s against the model and returns it.
func balance(t testing.TB, m *testkit.Model, s *outlet) batch.Account {
	t.Helper()
	a, err := m.Account(s.Account(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// lines makes a batch of n records of 32 bytes with tickets from 1.
func lines(n int) *batch.Batch { return new(testkit.Model).Batch(n, 32, batch.Meta{}) }
