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
// resources. [Output.Flush] and [Output.Sync] call the first two between two other calls of the
// driver. At the end each is called once, in this order, after the last session.
//
// The outlet has at most one session open and makes one call at a time. A panic or a runtime.Goexit
// of a driver counts as a failure of its session.
type Destination interface {
	// Open begins a session: it connects, greets and authenticates. It is called when there is a
	// batch to send, on a separate goroutine, and must return soon after the context of l has
	// ended. Errors made by [batch.RetryAfter] and [batch.Fatal] determine the next attempt.
	Open(l Life) (Session, error)
	// Traits returns how batches are handed over. The result is always the same.
	Traits() Traits
}

// A Session is one life of a connection, or of a client with connections of its
// own. Its calls never overlap, and come from one goroutine.
type Session interface {
	// Send sends b. If it returns nil, the session reports the outcome through [Life.Answer], once,
	// from any goroutine, also before Send returns. If it returns an error, nothing of b was sent
	// and the session accepts no more records: the outlet waits for the outstanding answers, and
	// opens a new session. A session leaves in this way, for example for a better server. A session
	// that was lost calls [Life.End].
	//
	// The records of b stay valid until its answer or, without one, until Close has returned. b
	// itself may be kept to answer it.
	Send(b *batch.Batch) error
	// Close ends the session. Once it has returned nothing reads a batch. The context
	// of the Life has ended before.
	Close()
}

// Life is the outlet's side of one session. Its methods may be called from any
// goroutine and never block.
type Life interface {
	// Context ends with the session. Its cause wraps context.DeadlineExceeded if Close
	// ran out of time.
	Context() context.Context
	// Answer reports the outcome of b. The first answer to a batch counts; an answer after End is
	// ignored. After an answer with open records no Send begins before all batches are answered. A
	// Send that has begun already must not store records that follow the open ones, but answer them
	// open, too.
	Answer(b *batch.Batch, o batch.Outcome)
	// End ends the session because of err; nil stands for a clean end. A
	// clean end of a session that has settled nothing is a failure, if something waits.
	// Batches without an answer will be sent again, in order, in the next session. The
	// first call counts, and no Send begins after it. An error made by [batch.RetryAfter]
	// or [batch.Fatal] is followed.
	End(err error)
}

// Traits describes how a [Destination] is used. The zero value is useful.
type Traits struct {
	// Limits are the largest batches that one Send wants. Zero fields mean no limit.
	Limits batch.Limits
	// Window is how many batches may be under way at once. Default 1.
	Window int
	// Accepts reports whether records of a content type can be sent; "" stands for
	// plain lines of unknown content. Default nil: all can.
	Accepts func(contentType string) bool
	// Dictionary knows what the streams of records are. Default nil: none.
	Dictionary batch.Dictionary
	// Inline is set if Send answers its batch on the goroutine that calls it, before it
	// returns, and reads nothing of it later: as a file does. Without a handler and a
	// spool the outlet calls such a session on the goroutine that brings the batch, one
	// batch at a time. A batch at which its sessions end is not searched for the record that
	// is at fault, unless an answer asks for it ([batch.Search]). Default false.
	Inline bool
	// Refused is called with the records that are given up for good, because of the answers of a
	// session or after the search, before they become dead letters and on the goroutine that
	// writes those: a driver may learn from them. It may read b until it returns. Default nil:
	// no call.
	Refused func(cause error, b *batch.Batch)
	// Vectors is set if a Send of several slabs costs no more calls than one of a single
	// slab. Default false.
	Vectors bool
	// Defaults sets the fields of o that are zero to the defaults of this destination, such as
	// Name, Codec and BufferBytes. Name and OnError of o are final in the last call, which
	// [NewOutput] makes before it opens a session; a driver that reports events keeps them.
	// Default nil: the defaults of OutputOptions.
	Defaults func(o *OutputOptions)
}

// acceptsForm is Accepts, true where that is nil, in the form that spool.Options wants:
// every schema version of a content type that can be sent can be.
func (t Traits) acceptsForm(contentType string, _ uint32) bool {
	return t.Accepts == nil || t.Accepts(contentType)
}

// SendFunc returns a Destination that has no connection to open: each batch is
// handed to send, which returns its outcome. send is called from one goroutine at a
// time and returns soon after ctx has ended. A nil send gives a nil Destination, which
// [NewOutput] refuses.
func SendFunc(t Traits, send func(ctx context.Context, b *batch.Batch) batch.Outcome) Destination {
	if send == nil {
		return nil
	}
	return sendFunc{t, send}
}

type sendFunc struct {
	t    Traits
	send func(context.Context, *batch.Batch) batch.Outcome
}

func (d sendFunc) Traits() Traits               { return d.t }
func (d sendFunc) Open(l Life) (Session, error) { return sendFuncSession{d, l}, nil }

type sendFuncSession struct {
	d sendFunc
	l Life
}

func (s sendFuncSession) Send(b *batch.Batch) error {
	s.l.Answer(b, s.d.send(s.l.Context(), b))
	return nil
}

func (sendFuncSession) Close() {}
