// Package deliver takes records from memory to a destination, whatever the
// destination does: fail, stall, refuse, hang, vanish.
//
// A driver knows one protocol: it is a [Destination], whose [Session] is one life of a
// connection. The outlet of an [Output] owns everything else: order, the window of
// batches under way, retries, the circuit breaker, the search for a record that the
// destination cannot take, the error handler, dead letters and the spool.
//
//	slab ── loan ──▶ [ spool │ memory ] ── oldest first ──▶ session ──▶ destination
//	                      ▲                                    │
//	                      └──── unanswered when it ended ◀─────┘
//	                      ├──▶ handler (circuit open, more than PendingLimit wait; or memory is full)
//	                      └──▶ dead letters (refused for good)
//
// # An outage
//
// What happens while the destination fails, in this order:
//
//  1. The batch is sent again with full jitter, with the wait that the destination
//     asked for as a floor, within a budget ([RetryOptions].BudgetRatio), until it is too old.
//  2. The circuit opens ([State]). From now on the destination is only probed.
//  3. Once more than PendingLimit records wait, the handler is offered them. The
//     records it takes count as handled. It is also offered them, in whatever state the
//     circuit is, when the memory is about to drop records and the destination takes none.
//  4. The rest goes into the spool, and so does everything newer, until the
//     destination is back and has taken all of it, in order.
//  5. Without a spool, or if the spool fails, the memory fills.
//
// # The account
//
// [Output.Account] accounts for every record: Accepted + Recovered = Delivered +
// Handled + Dropped + Pending, at any moment. Stats.Account is that of the records in the
// outlet's custody: those the memory has lent to it. Gap markers (batch.FlagMarker) travel like
// records and are counted nowhere.
//
// # Errors and secrets
//
// The text of a destination's errors is shown in events, in Stats, in dead letters
// and to error handlers. A driver must keep credentials out of it.
package deliver
