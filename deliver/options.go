package deliver

import (
	"time"

	"github.com/forebay-log/forebay/batch"
)

// Options configures an [Engine]. The zero value is useful: each field states its
// default and unit.
type Options struct {
	// Name is that of the destination. It stands in events, reports and Stats.
	// Default "deliver".
	Name string
	// Retry is how a failed Send is repeated. Name and OnError of it are not
	// used. Default nil: as described at [RetryOptions].
	Retry *RetryOptions
	// Breaker is when the destination is left alone. Default nil: as described
	// at [BreakerOptions].
	Breaker *BreakerOptions
	// Handler is offered records while the breaker is open. Default nil: none.
	Handler ErrorHandler
	// PendingLimit is how many records may wait before the handler is offered
	// any: it is, once strictly more do. Default 0.
	PendingLimit int
	// Pending returns how many records wait in front of the engine, such as
	// Account().Pending.Slab of the slab.Writer that feeds it; they count towards
	// PendingLimit. It must not wait for a Send. Default nil: none.
	Pending func() uint64
	// HandlerTimeout is how long Handler and DeadLetter may take. Default 10 s.
	HandlerTimeout time.Duration
	// DeadLetter is handed the records that the destination refuses for good.
	// Default nil: they are only counted.
	DeadLetter ErrorHandler
	// Spill holds what neither the destination nor the handler takes while the
	// breaker is open. What it holds at the start is delivered first. It is not
	// closed by the engine. Default nil: Send waits, and the producer's buffers
	// fill.
	Spill Spill
	// SpillWhenFull is for a producer that puts records into the spill when it is
	// full rather than wait, such as a slab.Writer whose policy is Spill: see
	// [Engine.SpillWhen]. The engine then sends copies from a goroutine of its own,
	// so that a destination that hangs holds nothing of the producer's; Send
	// still returns when they are settled or in the spill. That costs a copy and a switch of goroutines per batch. Default false.
	SpillWhenFull bool
	// OnError is told of transitions, see the parts: "send", "recovered", "hold",
	// "expired" ([RetryOptions]), "handler", "handler-recovered"
	// ([FallbackOptions]), "poison", "too-large", "dead-letter"
	// ([PoisonOptions]), "spill", "spilled", "spill-error" ([KeeperOptions]), and
	// "panic" of the destination. It runs on a goroutine of its own behind a
	// bounded queue, so it may log into this very destination. Default nil: a
	// line on standard error.
	OnError func(batch.Event)
}
