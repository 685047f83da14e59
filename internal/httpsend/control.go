package httpsend

import (
	"context"
	"time"

	"github.com/forebay-log/forebay/batch"
)

const (
	controlEvery = 10 * time.Second // how long an accepted request proves that the server accepts records
	controlBytes = 4 << 10
)

// A Control decides whether a server rejects records because of their contents: it sends a
// reference record that was accepted earlier. It is needed when nothing was accepted
// recently. The zero Control is for servers that cannot be probed before they accept a
// record.
type Control struct {
	// First is a probe without records, used until there is a reference record. Nil: none.
	First []byte
	// Words returns the message of an answer. Taken reports whether the answer accepts the
	// probe, or rejects it only because it contains no record.
	Words func(*Answer) string
	Taken func(*Answer) bool

	body []byte    // of the request with the reference record; nil: none
	made time.Time // when body was made
	at   time.Time // when a request was last accepted
}

// Keep records that a request was accepted. appendOne appends a request that contains one
// record of it.
func (c *Control) Keep(now time.Time, appendOne func(dst []byte) []byte) {
	if c.body == nil || now.Sub(c.made) > controlEvery {
		if body := appendOne(nil); len(body) <= controlBytes {
			c.body, c.made = body, now
		}
	}
	c.at = now
}

// Check turns o, which holds all records, into a search if the server accepts records.
func (c *Control) Check(ctx context.Context, p *Poster, o batch.Outcome) batch.Outcome {
	if !c.at.IsZero() && time.Since(c.at) <= controlEvery {
		o.Advice = batch.Search
		return o
	}
	return c.Ask(ctx, p, o)
}

// Ask is like Check, but always probes the server.
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
			if other.Advice == batch.Smaller { // the reference record was accepted before, so its size is not the reason
				other.Advice = batch.Hold
			}
			return other
		}
	}
	return o
}

// OutcomeOf returns the outcome of an error of [Poster.Post] for the records of the
// request.
func OutcomeOf(err error) batch.Outcome {
	o := batch.FailedOutcome(err)
	if LostBy(err) == NotSecure {
		o.Advice = batch.Hold
	}
	return o
}
