package deliver

import (
	"context"

	"github.com/forebay-log/forebay/batch"
)

// A Destination is the driver of one protocol. It connects, sends and reads answers. Retries,
// circuits, spools and dead letters are handled by the outlet.
//
// A Destination may also have the methods Flush(context.Context) error, to pass on buffered data,
// Sync() error, to sync it to stable storage, and Close(context.Context) error, to release its
// resources. [Output.Flush] calls Flush, and [Output.Sync] calls Flush and Sync, while no other
// call of the driver is in progress. After the last session has closed, the outlet calls Flush,
// Sync and Close once each, in this order.
//
// The outlet has at most one session open and makes one call at a time. A panic or a runtime.Goexit
// of a driver counts as a failure of its session.
type Destination interface {
	// Open begins a session: it connects, greets and authenticates. It is called when there is a
	// batch to send, on a separate goroutine, and must return soon after the context of l has
	// ended. An error made by [batch.RetryAfter] or [batch.Fatal] determines the time of the next
	// attempt.
	Open(l Life) (Session, error)
	// Traits describes how the outlet uses the destination. The result is always the same.
	Traits() Traits
}

// A Session is the lifetime of one connection, or of a client that manages several connections. Its
// methods are called from one goroutine, one at a time.
type Session interface {
	// Send sends b. If it returns nil, the session must report the outcome through [Life.Answer],
	// once, from any goroutine, possibly before Send returns.
	//
	// If Send returns an error, nothing of b was sent and the session accepts no more records. The
	// outlet then waits for the outstanding answers and opens a new session. A session can return
	// an error to move to a better server, for example. It reports a lost connection through
	// [Life.End] instead.
	//
	// The records of b stay valid until the session answers b. Without an answer they stay valid
	// until Close has returned. The session may keep b itself to answer it.
	Send(b *batch.Batch) error
	// Close ends the session. After it has returned, the session must not read any batch. The
	// context of the Life ends before Close is called.
	Close()
}

// Life is the interface through which a session reports to its outlet. Its methods may be called
// from any goroutine and never block.
type Life interface {
	// Context ends with the session. If [Output.Close] ran out of time, the cause of the context
	// wraps context.DeadlineExceeded.
	Context() context.Context
	// Answer reports the outcome of b. Only the first answer to a batch counts, and an answer after
	// End is ignored. If the outcome has open (undelivered) records, no further Send begins before
	// all batches in flight are answered. If a later Send is already in progress, the driver must
	// not store records that follow the open ones. It must report them as open, too, so that
	// records arrive in order.
	Answer(b *batch.Batch, o batch.Outcome)
	// End ends the session because of err; nil means a clean end. Only the first call has an
	// effect, and no Send begins after it. Batches without an answer are sent again, in order, in
	// the next session. A clean end counts as a failure if records are waiting and the session has
	// settled none. If err was made by [batch.RetryAfter] or [batch.Fatal], it determines when the
	// next session begins.
	End(err error)
}

// Traits describes how a [Destination] is used. The zero value is useful.
type Traits struct {
	// Limits restricts the size of the batch of one Send. Zero fields mean no limit.
	Limits batch.Limits
	// Window is the maximum number of batches in flight. Default 1.
	Window int
	// Accepts reports whether records of a content type can be sent. The content type "" stands for
	// plain lines. Default nil: all can be sent.
	Accepts func(contentType string) bool
	// Dictionary defines the streams of records. Default nil: none.
	Dictionary batch.Dictionary
	// Inline is set if Send answers its batch before it returns, on the goroutine that called it,
	// and does not read the batch later, as when writing to a file. The outlet then needs no
	// goroutine for the session, unless there is a handler or a spool. If sessions end repeatedly
	// at one batch, the outlet does not search that batch for the record at fault, unless an answer
	// asks for the search ([batch.Search]). Default false.
	Inline bool
	// Refused is called with each group of permanently refused records, before they become dead
	// letters. The records were refused by an answer, or found by a search for the records at
	// fault. The call is made on the goroutine that writes the dead letters. A driver can use it to
	// adapt to the refusals. It may read b until it returns. Default nil: no call.
	Refused func(cause error, b *batch.Batch)
	// Vectors is set if a Send of a batch that spans several slabs needs no more system calls than
	// a Send of one slab. Default false.
	Vectors bool
	// Defaults sets the fields of o that are zero to the defaults of this destination, such as
	// Name, Codec and BufferBytes. It may be called more than once. [NewOutput] makes the last call
	// before it opens a session, with the final values of Name and OnError. A driver that reports
	// events stores those values. Default nil: the defaults of OutputOptions.
	Defaults func(o *OutputOptions)
}

// SendFunc returns a Destination without connections: each batch is passed to send, which returns
// its outcome. send is called from one goroutine at a time and must return soon after ctx has
// ended. If send is nil, the result is a nil Destination, which [NewOutput] refuses.
func SendFunc(t Traits, send func(ctx context.Context, b *batch.Batch) batch.Outcome) Destination {
	if send == nil {
		return nil
	}
	return sendFunc{t, send}
}

// A sendFunc is the Destination of SendFunc.
type sendFunc struct {
	t    Traits
	send func(context.Context, *batch.Batch) batch.Outcome
}

func (d sendFunc) Traits() Traits               { return d.t }
func (d sendFunc) Open(l Life) (Session, error) { return sendSession{d.send, l}, nil }

// A sendSession is a session that calls a function for each batch and has no state.
type sendSession struct {
	send func(context.Context, *batch.Batch) batch.Outcome
	l    Life
}

func (s sendSession) Send(b *batch.Batch) error {
	s.l.Answer(b, s.send(s.l.Context(), b))
	return nil
}

func (sendSession) Close() {}
