// Package deliver takes records from memory to a destination, whatever the
// destination does: fail, stall, refuse, hang, vanish.
//
// A driver knows one protocol: it is a [Destination], whose [Session] is one life of a
// connection. An [Outlet] owns everything else: order, the window of batches under
// way, retries, the circuit breaker, the search for a record that the destination
// cannot take, the error handler, dead letters and the spool.
//
//	slab ── Send ──▶ [ spool │ memory ] ── oldest first ──▶ session ──▶ destination
//	                      ▲                                    │
//	                      └──── unanswered when it ended ◀─────┘
//	                      ├──▶ handler (circuit open, more than PendingLimit wait)
//	                      └──▶ dead letters (refused for good)
//
// # The account
//
// Records that Send takes (Tally.Taken) are in the outlet's custody.
// [Outlet.Account] says what became of them: Accepted + Recovered = Delivered + Handled
// + Dropped + Pending, at any moment. Gap markers (batch.FlagMarker) travel like
// records and are counted nowhere.
//
// # Errors and secrets
//
// The text of a destination's errors is shown in events, in Stats, in dead letters
// and to error handlers. A driver must keep credentials out of it.
package deliver
