package batch_test

import (
	"fmt"

	"github.com/forebay-log/forebay/batch"
)

// batchOf returns a batch of lines. Tests of drivers can use the same code.
func batchOf(lines ...string) *batch.Batch {
	var b batch.Batch
	for i, l := range lines {
		b.Append([]byte(l+"\n"), uint64(i+1), batch.Meta{})
	}
	return &b
}

// Check reports whether an account balances.
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

// Select and Slice do not copy records: the results share the memory of the batch.
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
