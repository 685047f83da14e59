package httpsend

import (
	"context"
	"errors"
	"time"

	"github.com/forebay-log/forebay/batch"
)

const (
	controlEvery = 10 * time.Second // for so long what was taken shows that records are
	controlBytes = 4 << 10
)

// A Control is what shows that a server refuses records for what they are: it takes another
// one, that was taken before. It is needed where nothing was taken of late. The zero Control
// is for servers that nothing can be asked before they took a record.
type Control struct {
	// First is a request that can be asked before that, of no record. Nil: none.
	First []byte
	// Words returns what an answer says, and Taken whether it says that the request was
	// taken, or misses nothing in it but a record.
	Words func(*Answer) string
	Taken func(*Answer) bool

	body []byte    // of the request with that record; nil: none
	made time.Time // of body
	at   time.Time // when a request was taken last
}

// Keep notes that a request was taken. appendOne appends one with a record of it alone.
func (c *Control) Keep(now time.Time, appendOne func(dst []byte) []byte) {
	if c.body == nil || now.Sub(c.made) > controlEvery {
		if body := appendOne(nil); len(body) <= controlBytes {
			c.body, c.made = body, now
		}
	}
	c.at = now
}

// Check turns o, which holds everything, into a search if the server takes records.
func (c *Control) Check(ctx context.Context, p *Poster, o batch.Outcome) batch.Outcome {
	if !c.at.IsZero() && time.Since(c.at) <= controlEvery {
		o.Advice = batch.Search
		return o
	}
	return c.Ask(ctx, p, o)
}

// Ask is Check, of a server that is to take a record now.
func (c *Control) Ask(ctx context.Context, p *Poster, o batch.Outcome) batch.Outcome {
	body := c.body
	if body == nil {
		body = c.First
	}
	if body == nil {
		return o
	}
	a, err := p.Post(ctx, body)
	switch {
	case err != nil:
		return OutcomeOf(err)
	case c.Taken(&a):
		o.Advice = batch.Search
		if c.body != nil {
			c.at = time.Now()
		}
	default:
		if other, ok := p.Judge(&a, c.Words(&a)); ok {
			if other.Advice == batch.Smaller { // it was taken before, so no size is the reason
				other.Advice = batch.Hold
			}
			return other
		}
	}
	return o
}

// OutcomeOf returns what an error of [Poster.Post] means for the records of the request.
func OutcomeOf(err error) batch.Outcome {
	var e *Error
	if errors.As(err, &e) {
		return e.Outcome()
	}
	return batch.FailedOutcome(err)
}
