// Package deliver moves records from memory to a destination that may fail, stall, refuse records,
// hang or disappear.
//
// A driver implements one protocol as a [Destination]. A [Session] is the lifetime of one
// connection. The outlet of an [Output] does everything else: order, the window of batches in
// flight, retries, the circuit breaker, the search for a record that the destination cannot accept,
// the error handler, dead letters and the spool.
//
//	slab ── lease ─▶ [ spool │ memory ] ── oldest first ──▶ session ──▶ destination
//	                      ▲                                    │
//	                      └──── unanswered when it ended ◀─────┘
//	                      ├──▶ handler (circuit open, more than PendingLimit wait; or memory is full)
//	                      └──▶ dead letters (refused permanently)
//
// An Output is an io.WriteCloser in front of a destination:
//
//	w, err := deliver.NewOutput(dest, &deliver.OutputOptions{SpoolDir: "/var/lib/shop/spool"})
//	if err != nil {
//		…
//	}
//	defer w.Close()
//	fmt.Fprintln(w, "a record")
//
// # An outage
//
// While the destination fails, the following happens in this order:
//
//  1. The batch is retried after a random delay (full jitter) that is at least the one the
//     destination asked for, within a retry budget ([RetryOptions].BudgetRatio), until the
//     records are too old (MaxAge).
//  2. The circuit opens ([State]). From now on the destination is only probed.
//  3. When more than PendingLimit records wait, they are offered to the handler. The records
//     that it accepts count as handled. Records are also offered to it, in any state of the
//     circuit, when the memory is about to drop records and the destination accepts none.
//  4. The other records are written to the spool, and so are all newer ones, until the
//     destination works again and has accepted all of them, in order.
//  5. Without a spool, or if the spool fails, the memory fills.
//
// # The account
//
// [Output.Account] accounts for every record: Accepted + Recovered = Delivered + Handled + Dropped
// + Pending, at any moment. Stats.Account has the records that the outlet has settled, copied or
// written to the spool; all others are in the account of the memory. Gap markers, which report
// dropped records to the destination, are delivered like records but not counted.
//
// # Errors and secrets
//
// The text of a destination's errors is shown in events, in Stats, in dead letters and to error
// handlers. A driver must keep credentials out of it.
package deliver
