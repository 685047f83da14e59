package httpsend

import (
	"context"
	"net/http"
	"time"

	"github.com/forebay-log/forebay/batch"
)

const (
	acceptedPeriod    = 10 * time.Second // time for which an accepted request proves that the server accepts records
	maxReferenceBytes = 4 << 10          // maximum size in bytes of a request that is kept as a probe
)

// A Prober decides whether a server rejects records because of their contents. It sends a probe
// with a reference record, which the server has accepted before. If the server accepts the probe,
// the rejected records are at fault. If the server rejects it, the server is at fault. The zero
// Prober sends no probe until the server has accepted a record. A Prober is used by one goroutine
// at a time.
type Prober struct {
	// First is a probe without records. It is sent while there is no reference record. If First is
	// nil, no probe is sent without a reference record.
	First []byte
	// Message returns the text of a response, for errors. Accepts reports whether the server has
	// accepted the probe, or has rejected it only because it contains no record.
	Message func(*Answer) string
	Accepts func(*Answer) bool

	body []byte    // request with the reference record, or nil
	made time.Time // time at which body was set
	at   time.Time // time at which a request was last accepted
}

// Keep is called when the server has accepted a request, at the time now. If the reference record
// is old, Keep replaces it. The function appendOne appends a request that contains one record of
// the accepted request.
func (c *Prober) Keep(now time.Time, appendOne func(dst []byte) []byte) {
	if c.body == nil || now.Sub(c.made) > acceptedPeriod {
		if body := appendOne(nil); len(body) <= maxReferenceBytes {
			c.body, c.made = body, now
		}
	}
	c.at = now
}

// Check returns the outcome for a request that the server has rejected. o is the outcome so far, in
// which all records of the request are undelivered. If the server has accepted a request within
// acceptedPeriod, or accepts the probe, Check adds the advice to search for the records at fault.
func (c *Prober) Check(ctx context.Context, p *Poster, o batch.Outcome) batch.Outcome {
	if !c.at.IsZero() && time.Since(c.at) <= acceptedPeriod {
		o.Advice = batch.Search
		return o
	}
	return c.Ask(ctx, p, o)
}

// Interpret returns the outcome of the response a, whose status is not 2xx. foreign reports that the
// text of a is not from the API. If rejected is true, the API has rejected the records (400 or 422):
// the caller looks for the records at fault, and otherwise calls Check.
//
// A proxy may have sent a 403, or a foreign 400, because of the text of a record, as a firewall does.
// If the server accepts the probe with the reference record, the advice is [batch.Doubt], because
// another instance of the proxy may have accepted it.
func (c *Prober) Interpret(ctx context.Context, p *Poster, a *Answer, foreign bool) (o batch.Outcome, rejected bool) {
	message := c.Message(a)
	o, known := p.Interpret(a, message)
	if !known {
		o = batch.Outcome{Open: batch.All(), Why: p.Refusal(a.Status, message), Advice: batch.Hold}
	}
	if a.Status != http.StatusForbidden && (known || !foreign) {
		return o, !known
	}
	if c.body == nil {
		return o, false
	}
	if o = c.Ask(ctx, p, o); o.Advice == batch.Search {
		o.Advice = batch.Doubt
	}
	return o, false
}

// Ask is like Check, but always sends the probe. If the server answers the probe with a status that
// has the same meaning for every server, that status determines the outcome.
func (c *Prober) Ask(ctx context.Context, p *Poster, o batch.Outcome) batch.Outcome {
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
	case c.Accepts(&a):
		o.Advice = batch.Search
		if c.body != nil {
			c.at = time.Now()
		}
	default:
		if other, ok := p.Interpret(&a, c.Message(&a)); ok {
			if other.Advice == batch.Smaller { // the probe is not too large, because the server has accepted the reference record before
				other.Advice = batch.Hold
			}
			return other
		}
	}
	return o
}

// OutcomeOf returns the outcome for all records of a request for which [Poster.Post] returned err.
func OutcomeOf(err error) batch.Outcome {
	o := batch.FailedOutcome(err)
	if StateAfter(err) == NotSecure {
		o.Advice = batch.Hold
	}
	return o
}
