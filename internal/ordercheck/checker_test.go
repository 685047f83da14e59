package ordercheck

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A script is a clock whose time the test sets.
type script struct{ now int64 }

func (s *script) Before() int64 { return s.now }
func (s *script) After() int64  { return s.now }

// A pastCall is one call of a given history, with the times at which it began and returned.
type pastCall struct {
	caller    int
	call, ret int64
	chain     uint64
	refused   bool
}

// play makes the calls in the given order. After that it delivers the records with the given
// indexes, in order.
func play(t *testing.T, calls []pastCall, order []int) (Result, error) {
	t.Helper()
	callers := 0
	for _, m := range calls {
		callers = max(callers, m.caller+1)
	}
	clock := new(script)
	c := New(callers, clock)
	recs := make([][]byte, len(calls))
	for i, m := range calls {
		k := c.Caller(m.caller)
		clock.now = m.call
		recs[i] = k.Begin(nil, HeaderBytes+i, m.chain)
		clock.now = m.ret
		k.End(!m.refused)
	}
	for _, i := range order {
		if _, err := c.Deliver(recs[i]); err != nil {
			return Result{}, err
		}
	}
	return c.Check()
}

func TestHandMadeHistories(t *testing.T) {
	tests := map[string]struct {
		calls []pastCall
		order []int
		want  string // part of the error; "" if the order is correct
	}{
		"one after the other": {
			[]pastCall{{caller: 0, call: 1, ret: 2}, {caller: 1, call: 3, ret: 4}}, []int{0, 1}, "",
		},
		"exchanged": {
			[]pastCall{{caller: 0, call: 1, ret: 2}, {caller: 1, call: 3, ret: 4}}, []int{1, 0},
			"record 0/0, whose call returned at 2, arrived after record 1/0, whose call began at 3",
		},
		"overlapping calls may arrive either way": {
			[]pastCall{{caller: 0, call: 1, ret: 4}, {caller: 1, call: 3, ret: 6}}, []int{1, 0}, "",
		},
		"equal readings count as overlapping": {
			[]pastCall{{caller: 0, call: 1, ret: 3}, {caller: 1, call: 3, ret: 6}}, []int{1, 0}, "",
		},
		"a late one between two that are fine": {
			// A third record is delivered between the two records in the wrong order.
			[]pastCall{{caller: 0, call: 1, ret: 2}, {caller: 1, call: 5, ret: 9}, {caller: 2, call: 1, ret: 9}}, []int{1, 2, 0},
			"record 0/0, whose call returned at 2, arrived after record 1/0",
		},
		"a chain of overlaps": {
			[]pastCall{{caller: 0, call: 1, ret: 4}, {caller: 1, call: 3, ret: 8}, {caller: 2, call: 7, ret: 9}}, []int{1, 0, 2}, "",
		},
		"the ends of a chain of overlaps": {
			[]pastCall{{caller: 0, call: 1, ret: 4}, {caller: 1, call: 3, ret: 8}, {caller: 2, call: 7, ret: 9}}, []int{1, 2, 0},
			"record 0/0",
		},
		"program order": {
			[]pastCall{{caller: 0, call: 1, ret: 1}, {caller: 0, call: 1, ret: 1}}, []int{1, 0}, "program order is broken",
		},
		"twice": {
			[]pastCall{{caller: 0, call: 1, ret: 2}}, []int{0, 0}, "record 0/0 arrived twice",
		},
		"refused and yet here": {
			[]pastCall{{caller: 0, call: 1, ret: 2, refused: true}}, []int{0}, "not accepted",
		},
		"mutex order": {
			[]pastCall{{caller: 0, call: 1, ret: 9, chain: 1}, {caller: 1, call: 1, ret: 9, chain: 2}}, []int{1, 0}, "order of a mutex",
		},
		"gaps are fine": {
			[]pastCall{{caller: 0, call: 1, ret: 2}, {caller: 0, call: 3, ret: 4}, {caller: 0, call: 5, ret: 6, chain: 9}}, []int{2}, "",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			res, err := play(t, tt.calls, tt.order)
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if res.Calls != len(tt.calls) || res.Delivered != len(tt.order) || res.Lost != res.Accepted-res.Delivered {
					t.Errorf("counted %+v", res)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

// For random histories, the Checker finds a wrong order if and only if a comparison of all pairs
// does.
func TestAgreesWithDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	broken := 0
	for round := range 3000 {
		n := 2 + rng.IntN(8)
		calls := make([]pastCall, n)
		for i := range calls { // each call has a different caller, so that the order of calls of one caller does not matter
			call := rng.Int64N(12)
			calls[i] = pastCall{caller: i, call: call, ret: call + rng.Int64N(6)}
		}
		order := rng.Perm(n)
		if round%2 == 0 { // almost in order
			slices.SortFunc(order, func(a, b int) int { return int(calls[a].ret - calls[b].ret) })
		}
		want := 0
		for at, j := range order {
			if slices.ContainsFunc(order[:at], func(i int) bool { return calls[j].ret < calls[i].call }) {
				want++
			}
		}
		res, err := play(t, calls, order)
		if res.Broken != want || (err != nil) != (want > 0) {
			t.Fatalf("round %d: %+v delivered as %v: %d broken, %v; the definition says %d", round, calls, order, res.Broken, err, want)
		}
		if want > 0 {
			broken++
		}
	}
	if broken < 500 || broken > 2500 {
		t.Errorf("%d of 3000 random histories are broken: the comparison shows little", broken)
	}
}

// A queue guarded by a mutex keeps the order. A queue that assigns positions before it acquires the
// lock does not keep the order, and the Checker detects that.
func TestConcurrentCallersAreChecked(t *testing.T) {
	for name, clock := range map[string]func() Clock{"logical": NewLogical, "monotonic": NewMonotonic} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/late=%v", name, late), func(t *testing.T) {
				c := New(4, clock())
				var mu sync.Mutex
				var out [][]byte
				var wg sync.WaitGroup
				for g := range 4 {
					wg.Go(func() {
						k := c.Caller(g)
						for i := range 500 {
							mu.Lock()
							rec := k.Begin(nil, 40+i%50, 0)
							at := len(out)
							if late && at > 0 && i%100 == 7 {
								at-- // inserted before a record whose call has already returned
							}
							out = slices.Insert(out, at, rec)
							k.End(true)
							mu.Unlock()
						}
					})
				}
				wg.Wait()
				var err error
				for _, rec := range out {
					if _, err = c.Deliver(rec); err != nil {
						break
					}
				}
				res := Result{}
				if err == nil {
					res, err = c.Check()
				}
				if !late && (err != nil || res.Delivered != 2000 || res.Lost != 0) {
					t.Errorf("in order: %+v, %v", res, err)
				}
				if late && err == nil {
					t.Error("records in the wrong order were not detected")
				}
			})
		}
	}
}

func TestOrderHoldsAcrossRounds(t *testing.T) {
	clock := new(script)
	c := New(2, clock)
	write := func(g int, call, ret int64) []byte {
		k := c.Caller(g)
		clock.now = call
		p := k.Begin(nil, 50, 0)
		clock.now = ret
		k.End(true)
		return p
	}
	first := write(0, 1, 2)
	if _, err := c.Deliver(first); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Check(); err != nil {
		t.Fatal(err)
	}
	c.Next()
	if _, err := c.Deliver(first); err == nil {
		t.Error("a record of the last round arrived again unnoticed")
	}
	if _, err := c.Deliver(write(0, 3, 4)); err != nil {
		t.Fatal(err)
	}
	if res, err := c.Check(); err != nil || res.Calls != 1 || res.Delivered != 1 {
		t.Errorf("second round: %+v, %v", res, err)
	}
	// A call of the previous round returned before the calls of this round began, so its record
	// arrives too late.
	if _, err := c.Deliver(write(1, 1, 2)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Check(); err == nil {
		t.Error("a wrong order across rounds was not detected")
	}
}

func TestWriteSplitsRecords(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		c := New(1, NewLogical())
		k := c.Caller(0)
		var out []byte
		for range 20 {
			out = k.Begin(out, rng.IntN(9000), 0)
			k.End(true)
		}
		for p := out; len(p) > 0; {
			n := 1 + rng.IntN(min(len(p), 6000))
			if _, err := c.Write(p[:n]); err != nil {
				t.Fatal(err)
			}
			p = p[n:]
		}
		if res, err := c.Check(); err != nil || res.Delivered != 20 || res.Lost != 0 {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	c := New(1, NewLogical())
	rec := c.Caller(0).Begin(nil, 100, 0)
	c.Caller(0).End(true)
	c.Write(rec[:99])
	if _, err := c.Check(); err == nil || !strings.Contains(err.Error(), "torn") {
		t.Errorf("a torn end: %v", err)
	}
	if _, err := c.Write(rec); err == nil {
		t.Error("a torn record between others was not detected")
	}
}

// Every change of a record is detected.
func TestDamageIsSeen(t *testing.T) {
	c := New(1, NewLogical())
	rec := c.Caller(0).Begin(nil, 5000, 7)
	for i := range rec {
		bad := bytes.Clone(rec)
		bad[i] ^= 1 << (i % 8)
		if _, err := parse(bad); err == nil {
			t.Fatalf("a changed byte %d passes", i)
		}
	}
	for _, n := range []int{0, 3, HeaderBytes - 1, HeaderBytes, len(rec) - 1} {
		if _, err := parse(rec[:n]); err == nil {
			t.Errorf("the first %d bytes pass for a record", n)
		}
	}
	if _, err := c.Deliver(record{ID: ID{Caller: 9}}.append(nil, 50)); err == nil {
		t.Error("a record of an unknown caller passes")
	}
}

func TestSurplusAndUnendedCalls(t *testing.T) {
	c := New(1, NewLogical())
	if _, err := c.Deliver(record{}.append(nil, 50)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Check(); err == nil || !strings.Contains(err.Error(), "did not write") {
		t.Errorf("the result for a record that no caller has written: %v", err)
	}
	c = New(1, NewLogical())
	if _, err := c.Deliver(c.Caller(0).Begin(nil, 50, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Check(); err == nil || !strings.Contains(err.Error(), "not ended") {
		t.Errorf("a call that has not ended: %v", err)
	}
}

func FuzzDeliver(f *testing.F) {
	f.Add(record{ID: ID{0, 3}, call: 5, chain: 2}.append(nil, 100))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, p []byte) {
		c := New(1, NewLogical())
		if r, err := parse(p); err == nil {
			if r.Seq > 1<<16 {
				t.Skip() // a large gap would need much memory
			}
			if !bytes.Equal(r.append(nil, len(p)), p) {
				t.Fatalf("%v is read from other bytes than it is written as", r)
			}
		}
		_, _ = c.Deliver(p)
		_, _ = c.Write(p)
		_, _ = c.Check()
	})
}

func ExampleChecker() {
	c := New(2, NewLogical())
	a, b := c.Caller(0), c.Caller(1)
	first := a.Begin(nil, 64, 0)
	a.End(true)
	second := b.Begin(nil, 64, 0) // this call begins after the first one has returned
	b.End(true)

	_, _ = c.Deliver(second)
	_, _ = c.Deliver(first)
	_, err := c.Check()
	fmt.Println(err)
	// Output: ordercheck: record 0/0, whose call returned at 1, arrived after record 1/0, whose call began at 2: order is broken
}
