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

	// The following fields belong to the goroutine of the destination.
	seen  [][]seen // by caller and sequence number
	last  record   // the delivered record whose call began last
	chain uint64   // the highest chain number delivered
	n     int
	torn  []byte // an incomplete record passed to Write
}

// seen describes the records that arrived before a record.
type seen struct {
	bound int64 // latest begin of a call among the records delivered before
	by    ID    // the record of that call
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
	_    [64]byte // keeps callers in separate cache lines
}

type call struct {
	ret      int64
	ended    bool
	accepted bool
}

// Caller returns caller g.
func (c *Checker) Caller(g int) *Caller { return &c.callers[g] }

// Begin appends the record of the next call to dst and reads the clock. The record has n bytes, at
// least HeaderBytes. The call must follow immediately. If chain is not 0, the record belongs to the
// chain, whose numbers must arrive in increasing order.
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

// Deliver adds the next record that arrived and returns its ID. It returns an error for damaged,
// repeated and unexpected records. Check checks the order in time.
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
		*s = append(*s, seen{}) // a gap: dropped records, or records that arrive late
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

// Write delivers bytes that contain any number of records, or parts of records, in order.
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

// A Result contains the counts of a round.
type Result struct {
	Calls     int // calls made
	Accepted  int // accepted calls
	Delivered int
	Lost      int // accepted and not delivered
	// Broken is the number of records that arrived after a record whose call began after theirs had
	// returned.
	Broken int
}

// Check checks all records and calls since New or Next. The error names the first record that broke
// the order, or that arrived although it was not accepted. The Result is valid even with an error.
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

// Next begins a new round and releases the memory of the previous calls. Every record that can
// still arrive must have arrived. The requirements on the order also apply across rounds.
func (c *Checker) Next() {
	for g := range c.callers {
		k := &c.callers[g]
		k.base += uint32(len(k.call))
		k.call = k.call[:0]
		c.seen[g] = c.seen[g][:0]
	}
	c.n = 0
}
