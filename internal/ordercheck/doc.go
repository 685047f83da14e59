// Package ordercheck determines from the output of a destination whether records arrived in the
// order of the calls that made them.
//
// The promise under test is real-time order: if the call that wrote record A returned before the
// call that wrote record B began, A comes first at the destination. Calls that overlapped may
// arrive in any order.
//
// Every record contains the time at which its call began, and the caller stores the time at which
// the call returned, both from one clock. In the order of delivery, record j breaks the order
// exactly if some record delivered before it began later than j returned:
//
//	ret(j) < max call(i) over all i delivered before j
//
// so one running maximum finds every violation in linear time. (Gibbons and Korach, Testing Shared
// Memories, 1997, call the general problem hard; a queue with unique values whose output is totally
// ordered is one of the easy cases.)
//
// A [Checker] also finds records that arrived twice, damaged, or although the call had reported
// that they were not accepted; records of one caller out of program order; and records of a chain
// out of order: numbers counted and written under one mutex.
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
