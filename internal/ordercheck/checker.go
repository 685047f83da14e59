package ordercheck

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A Checker collects the calls of the callers and the records received by the destination.
//
// Each [Caller] belongs to one goroutine at a time, and so do Deliver and Write; they may all run
// concurrently. Check and Next require that no call is in progress.
type Checker struct {
	clock   Clock
	callers []Caller

	// Of the destination's side:
	seen  [][]seen // by caller and sequence number
	last  record   // the delivered record whose call began last
	chain uint64   // the highest chain number delivered
	n     int
	torn  []byte // a part of a record that Write was given
}

// seen is the state of a check when a record arrived.
type seen struct {
	bound int64 // greatest call of the records delivered before
	by    ID    // its caller
	here  bool
}

// New returns a Checker of callers 0 to callers-1.
func New(callers int, clock Clock) *Checker {
	c := &Checker{clock: clock, callers: make([]Caller, callers), seen: make([][]seen, callers)}
	for i := range c.callers {
		c.callers[i].c, c.callers[i].id = c, uint32(i)
	}
	c.last.call = math.MinInt64
	return c
}

// A Caller stamps the calls of one goroutine.
type Caller struct {
	c    *Checker
	id   uint32
	base uint32 // sequence number of calls[0]
	call []call
	_    [64]byte // callers do not share a cache line
}

type call struct {
	ret      int64
	ended    bool
	accepted bool
}

// Caller returns caller g.
func (c *Checker) Caller(g int) *Caller { return &c.callers[g] }

// Begin appends the record of the next call, n bytes long (at least
// HeaderBytes), to dst and reads the clock. The call is to follow at once. If
// chain is not 0 the record belongs to the chain: chain numbers have to arrive
// in rising order.
func (k *Caller) Begin(dst []byte, n int, chain uint64) []byte {
	r := record{ID: ID{k.id, k.base + uint32(len(k.call))}, chain: chain}
	k.call = append(k.call, call{})
	r.call = k.c.clock.Before()
	return r.append(dst, n)
}

// End records that the call of the last Begin has returned. accepted reports whether the record may
// arrive at the destination.
func (k *Caller) End(accepted bool) {
	k.call[len(k.call)-1] = call{ret: k.c.clock.After(), ended: true, accepted: accepted}
}

// LastAccepted returns the last record of this round that was accepted, if any.
func (k *Caller) LastAccepted() (ID, bool) {
	for i := len(k.call) - 1; i >= 0; i-- {
		if k.call[i].accepted {
			return ID{k.id, k.base + uint32(i)}, true
		}
	}
	return ID{}, false
}

// Deliver adds the next record that arrived and returns its ID. The error reports certain faults;
// the order in time is checked by Check.
func (c *Checker) Deliver(p []byte) (ID, error) {
	r, err := parse(p)
	if err == nil {
		err = c.deliver(r)
	}
	return r.ID, err
}

func (c *Checker) deliver(r record) error {
	if int(r.Caller) >= len(c.callers) || r.Seq < c.callers[r.Caller].base {
		return fmt.Errorf("ordercheck: record %v arrived, which nobody wrote in this round", r.ID)
	}
	i := int(r.Seq - c.callers[r.Caller].base)
	s := &c.seen[r.Caller]
	if i < len(*s) {
		if (*s)[i].here {
			return fmt.Errorf("ordercheck: record %v arrived twice", r.ID)
		}
		return fmt.Errorf("ordercheck: record %v arrived after %v: program order is broken",
			r.ID, ID{r.Caller, c.callers[r.Caller].base + uint32(len(*s)) - 1})
	}
	for len(*s) < i {
		*s = append(*s, seen{}) // dropped, or yet to come and then out of order
	}
	*s = append(*s, seen{bound: c.last.call, by: c.last.ID, here: true})
	c.n++
	if r.chain != 0 {
		if r.chain <= c.chain {
			return fmt.Errorf("ordercheck: record %v has chain number %d and arrived after number %d: the order of a mutex is broken",
				r.ID, r.chain, c.chain)
		}
		c.chain = r.chain
	}
	if r.call > c.last.call {
		c.last = r
	}
	return nil
}

// Write is Deliver for a destination that receives bytes: it accepts any number of records, or
// parts of them, in order.
func (c *Checker) Write(p []byte) (int, error) {
	n := len(p)
	if len(c.torn) > 0 {
		c.torn = append(c.torn, p...)
		p = c.torn
	}
	for len(p) >= 4 {
		k := binary.LittleEndian.Uint32(p)
		if k < HeaderBytes || k > MaxRecordBytes {
			return 0, fmt.Errorf("ordercheck: no record begins with %.32q", p)
		}
		if len(p) < int(k) {
			break
		}
		if _, err := c.Deliver(p[:k]); err != nil {
			return 0, err
		}
		p = p[k:]
	}
	c.torn = append(c.torn[:0], p...)
	return n, nil
}

// A Result counts what a round brought.
type Result struct {
	Calls     int // made
	Accepted  int // of these
	Delivered int
	Lost      int // accepted and not delivered
	// Broken is how many records arrived after one whose call began later than
	// theirs returned.
	Broken int
}

// Check goes over everything that was delivered and noted since New or Next. The
// error names the first record of some caller that broke the order, or that
// arrived though it was not accepted; the Result is valid all the same.
func (c *Checker) Check() (Result, error) {
	var res Result
	var first error
	fail := func(format string, args ...any) {
		if first == nil {
			first = fmt.Errorf("ordercheck: "+format, args...)
		}
	}
	if len(c.torn) > 0 {
		fail("the output ends with %d bytes of a torn record", len(c.torn))
	}
	res.Delivered = c.n
	for g := range c.callers {
		k := &c.callers[g]
		res.Calls += len(k.call)
		if extra := len(c.seen[g]) - len(k.call); extra > 0 {
			fail("%d records of caller %d arrived that it did not write", extra, g)
		}
		for i, cl := range k.call {
			id := ID{uint32(g), k.base + uint32(i)}
			here := i < len(c.seen[g]) && c.seen[g][i].here
			if cl.accepted {
				res.Accepted++
				if !here {
					res.Lost++
				}
			}
			if !here {
				continue
			}
			switch s := c.seen[g][i]; {
			case !cl.ended:
				fail("record %v arrived, and its call has not ended", id)
			case !cl.accepted:
				fail("record %v arrived though it was not accepted", id)
			case cl.ret < s.bound:
				res.Broken++
				fail("record %v, whose call returned at %d, arrived after record %v, whose call began at %d: order is broken",
					id, cl.ret, s.by, s.bound)
			}
		}
	}
	return res, first
}

// Next begins a round that needs no more memory than the last: it forgets the
// calls made so far. Every record that can still arrive must have arrived. What
// order asks of the next round carries over.
func (c *Checker) Next() {
	for g := range c.callers {
		k := &c.callers[g]
		k.base += uint32(len(k.call))
		k.call = k.call[:0]
		c.seen[g] = c.seen[g][:0]
	}
	c.n = 0
}
