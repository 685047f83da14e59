// Package ordercheck decides, from what a destination received, whether records
// arrived in the order of the calls that made them.
//
// The promise under test is real-time order: if the call that wrote record A
// returned before the call that wrote record B began, A comes first at the
// destination. Calls that overlapped may arrive either way.
//
// The output is its own witness. Every record carries when its call began, and
// the caller notes when the call returned, both on one clock. Going through the
// records as they were delivered, record j breaks the order exactly if some
// record delivered before it began later than j returned:
//
//	ret(j) < max call(i) over all i delivered before j
//
// so one running maximum finds every violation in linear time. (Gibbons and
// Korach, Testing Shared Memories, 1997, call the general problem hard; a queue
// with unique values whose output is totally ordered is one of the easy cases.)
//
// A [Checker] also finds records that arrived twice, damaged, or though the call
// said it had not accepted them; records of one caller out of program order; and
// records of a clock-free chain out of chain order: numbers counted up and
// written under one mutex.
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
