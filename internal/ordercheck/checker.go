package ordercheck

import (
	"encoding/binary"
	"fmt"
)

// A Checker collects the calls of all callers and the records that arrive at the destination.
//
// Each [Caller] is used by one goroutine at a time. Deliver and Write are also called by one
// goroutine at a time. Callers, Deliver and Write may run concurrently. Check and Next may only be
// called while no call is in progress.
type Checker struct {
	clock   Clock
	callers []Caller

	// The destination's goroutine uses the following fields.
	seen  [][]seen // indexes: caller, sequence number
	order Order[ID]
	chain uint64 // highest chain number delivered so far
	n     int
	torn  []byte // beginning of a record that Write has received in part
}

// seen describes the arrival of a record.
type seen struct {
	before Latest[ID]
	here   bool
}

// New returns a Checker for the callers 0 to callers-1.
func New(callers int, clock Clock) *Checker {
	c := &Checker{clock: clock, callers: make([]Caller, callers), seen: make([][]seen, callers)}
	for i := range c.callers {
		c.callers[i].c, c.callers[i].id = c, uint32(i)
	}
	return c
}

// A Caller records the times of the calls of one goroutine.
type Caller struct {
	c    *Checker
	id   uint32
	base uint32 // sequence number of calls[0]
	call []call
	_    [64]byte // keeps callers in different cache lines
}

type call struct {
	ret      int64
	ended    bool
	accepted bool
}

// Caller returns the caller with the number g, counted from 0. Only one goroutine at a time may use
// it.
func (c *Checker) Caller(g int) *Caller { return &c.callers[g] }

// Begin appends the record of the next call to dst, and reads the clock. The caller must make the
// call immediately after it. The record has n bytes, at least HeaderBytes. Records with a chain
// number other than 0 must arrive in ascending order of these numbers.
func (k *Caller) Begin(dst []byte, n int, chain uint64) []byte {
	r := record{ID: ID{k.id, k.base + uint32(len(k.call))}, chain: chain}
	k.call = append(k.call, call{})
	r.call = k.c.clock.Before()
	return r.append(dst, n)
}

// End is called when the call announced by the last Begin has returned. accepted reports whether
// its record may arrive at the destination.
func (k *Caller) End(accepted bool) {
	k.call[len(k.call)-1] = call{ret: k.c.clock.After(), ended: true, accepted: accepted}
}

// LastAccepted returns the last accepted record of this round. It returns false if no record was
// accepted.
func (k *Caller) LastAccepted() (ID, bool) {
	for i := len(k.call) - 1; i >= 0; i-- {
		if k.call[i].accepted {
			return ID{k.id, k.base + uint32(i)}, true
		}
	}
	return ID{}, false
}

// Deliver adds the next record that has arrived and returns its ID. It returns an error for a
// record that is damaged, repeated or unexpected. Check later checks the order of the records.
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
		*s = append(*s, seen{}) // for records that are dropped or arrive later
	}
	*s = append(*s, seen{before: c.order.Arrive(r.ID, r.call), here: true})
	c.n++
	if r.chain != 0 {
		if r.chain <= c.chain {
			return fmt.Errorf("ordercheck: record %v has chain number %d and arrived after number %d: the order of a mutex is broken",
				r.ID, r.chain, c.chain)
		}
		c.chain = r.chain
	}
	return nil
}

// Write delivers the records in p. p may begin and end in the middle of a record.
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

// A Result contains the counts of a round, which is the time from New or Next to Check.
type Result struct {
	Calls     int // number of calls
	Accepted  int // number of accepted calls
	Delivered int
	Lost      int // number of accepted records that were not delivered
	// Broken is the number of records that arrived too late: their calls had returned before the
	// call of an earlier delivered record began.
	Broken int
}

// Check checks all records and calls since New or Next. The error names the first record that
// arrived in the wrong order or was not accepted. The Result is valid even if there is an error.
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
			case s.before.Follows(cl.ret):
				res.Broken++
				fail("record %v, whose call returned at %d, arrived after record %v, whose call began at %d: order is broken",
					id, cl.ret, s.before.ID, s.before.Began)
			}
		}
	}
	return res, first
}

// Next begins a new round and releases the memory of earlier calls. No record of an earlier round
// may arrive after it. The order is also checked between records of different rounds.
func (c *Checker) Next() {
	for g := range c.callers {
		k := &c.callers[g]
		k.base += uint32(len(k.call))
		k.call = k.call[:0]
		c.seen[g] = c.seen[g][:0]
	}
	c.n = 0
}
