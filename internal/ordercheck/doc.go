// Package ordercheck determines from the output of a destination whether records arrived in the
// order of the calls that made them.
//
// The promise under test is real-time order: if the call that wrote record A returned before the
// call that wrote record B began, A comes first at the destination. Calls that overlapped may
// arrive in any order.
//
// Every record contains the time at which its call began, and the caller stores the time at which
// the call returned, both from one clock. Record j breaks the order exactly if some record i was
// delivered before j, although the call of j returned before the call of i began:
//
//	ret(j) < max call(i) over all i delivered before j
//
// Therefore one running maximum finds every violation in linear time. (Gibbons and Korach, Testing
// Shared Memories, 1997, call the general problem hard; a queue with unique values whose output is
// totally ordered is one of the easy cases.)
//
// A [Checker] also finds records that arrived damaged or twice, records whose call reported that
// they were not accepted, and records of one caller that arrived in another order than its calls. A
// chain is a sequence of numbers that the callers assign to records under one mutex, which they
// hold during the call. The Checker also finds records that break the order of the chain.
//
//	c := ordercheck.New(callers, ordercheck.NewLogical())
//	go func() { // caller g
//		k := c.Caller(g)
//		rec := k.Begin(buf[:0], 100, 0)
//		_, err := w.Write(rec)
//		k.End(err == nil)
//	}()
//	…                  // the destination calls c.Deliver(rec) for each record
//	res, err := c.Check() // after all callers and the destination have ended
package ordercheck
