// Package deliver makes sure that what a destination does (fail, stall, refuse,
// vanish) loses no record in silence.
//
// Every part is a [batch.Sink] around a Sink and works alone:
//
//	Retry      sends again what may be sent again, with full jitter
//	Breaker    stops asking a destination that is down, and probes it
//	Fallback   hands what waits to an ErrorHandler
//	Poison     finds the records a destination refuses, and buries them
//	Keeper     holds batches: in flight in a window, or in a spill on disk
//
// An [Engine] is all of them in the order of an outage:
//
//	Send ─▶ Retry ─▶ Keeper ─▶ Fallback ─▶ Breaker ─▶ Poison ─▶ destination
//	                   │  ▲        │                     │
//	                   ▼  │        ▼                     ▼
//	                  spill     handler             dead letters
//
// A failed Send comes back from the right. It is tried again after a delay until
// the breaker opens. From then on the handler is asked, once more than
// PendingLimit records wait; what it does not take goes into the spill, if there
// is one, from where the Keeper delivers it, in order and before anything newer;
// else Send waits, the producer's slabs fill up, and its when-full policy
// decides.
//
// A producer whose policy is to spill when it is full (slab.Spill) does not wait
// for a destination that is slow or hangs either: see [Engine.SpillWhen].
//
// # What is counted where
//
// Records that a Send settles are the producer's to count, with the help of
// [batch.Tally]: delivered, Handled, Dropped{poison, expired}. Records that a
// Keeper takes (Tally.Taken) are in its custody; [Keeper.Account] says what
// became of them. Gap markers ([batch.FlagMarker]) travel like records and are
// counted nowhere.
//
// # Errors and secrets
//
// The text of a destination's errors is shown in events, in Stats, in dead
// letters and to error handlers. A Sink must keep credentials out of it.
package deliver
