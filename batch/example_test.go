package batch_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// batchOf makes a batch by hand, as a test of a sink would.
func batchOf(lines ...string) *batch.Batch {
	var b batch.Builder
	for i, l := range lines {
		b.Append([]byte(l+"\n"), uint64(i+1), batch.Meta{})
	}
	return b.Batch(nil)
}

// A sink is one function. What it returns says what became of the records.
func ExampleSink() {
	sink := batch.SinkFunc(func(_ context.Context, b *batch.Batch) error {
		for i, r := range b.All() {
			if len(r.Data) > 8 { // the destination stopped here: it has what is before
				return batch.Prefix(i, errors.New("no room for long ones"))
			}
			fmt.Printf("%d %s", r.Ticket, r.Data)
		}
		return nil
	})
	err := sink.Send(context.Background(), batchOf("one", "two", "a long record", "three"))
	e := batch.Inspect(err)
	fmt.Println(e.Kind, e.Acked, batch.Retryable(err))
	// Output:
	// 1 one
	// 2 two
	// prefix 2 true
}

// What may be sent again, what must not be.
func ExampleRetryable() {
	for _, err := range []error{
		errors.New("connection reset"),
		batch.RetryAfter(errors.New("too many requests"), 3*time.Second),
		batch.Partial(errors.New("two streams were refused for now"), 4, 7),
		batch.Permanent(errors.New("no such tenant")),
		batch.Reject(errors.New("timestamp too old"), 2),
		batch.TooLarge(errors.New("body above 4 MiB")),
		batch.Fatal(errors.New("wrong password")),
	} {
		e := batch.Inspect(err)
		fmt.Printf("%-9s retry=%-5v after=%v records=%v\n", e.Kind, batch.Retryable(err), e.After, e.Records)
	}
	// Output:
	// retry     retry=true  after=0s records=[]
	// retry     retry=true  after=3s records=[]
	// partial   retry=true  after=0s records=[4 7]
	// reject    retry=false after=0s records=[]
	// reject    retry=false after=0s records=[2]
	// too large retry=true  after=0s records=[]
	// fatal     retry=false after=0s records=[]
}

// An account balances, or says that it does not.
func ExampleAccount() {
	a := batch.Account{Accepted: 10, Recovered: 2, Delivered: 9, Handled: 1}
	a.Dropped[batch.Oversize] = 1
	a.Pending.Spill = 1
	fmt.Println(a, a.Check())
	a.Delivered--
	fmt.Println(a.Check() != nil)
	// Output:
	// accepted=10 recovered=2 delivered=9 handled=1 dropped=1{oversize=1} pending=1{slab=0 spill=1 inflight=0} <nil>
	// true
}

// Parts of a batch share its memory: nothing is copied.
func ExampleBatch_Select() {
	b := batchOf("zero", "one", "two", "three")
	var some, rest batch.Batch
	fmt.Printf("%s", b.Select(&some, []int{0, 2}).AppendTo(nil))
	fmt.Println(b.Slice(&rest, 1, 4).Len(), "records from", rest.First(), "to", rest.Last())
	// Output:
	// zero
	// two
	// 3 records from 2 to 4
}

// Runs are how slabs are handed over; a marker or a test makes one by hand.
func ExampleNewRun() {
	block := []byte("first\nsecond\n")
	slots := []batch.Slot{{Ticket: 1, Off: 0, Len: 6}, {Ticket: 2, Off: 6, Len: 7}}
	r := batch.NewRun(block, slots)
	fmt.Printf("%d records, %q, %q\n", r.Len(), r.Data(), r.Record(1))
	// Output: 2 records, "first\nsecond\n", "second\n"
}

// A pipe whose reader is gone: what it took is delivered, the rest has failed.
func ExampleLost() {
	b := batchOf("one", "two", "three")
	sink := batch.SinkFunc(func(_ context.Context, b *batch.Batch) error {
		return batch.Lost(b, 1, errors.New("broken pipe"))
	})
	err := sink.Send(context.Background(), b)
	fmt.Println(batch.Retryable(err), b.Tally.Dropped)
	// Output: false failed=2
}
