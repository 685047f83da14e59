package fluent

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/backoff"
)

var (
	errClosed = fmt.Errorf("fluent: %w", batch.ErrClosed)
	errNoAck  = errors.New("no acknowledgement in time")
	errUnread = errors.New("the server did not read a batch")
	errNoBeat = errors.New("no heartbeat of the server")
)

// A Client is the driver of the Forward protocol: a [deliver.Destination] that takes
// batches of Forward entries ([Codec]) to a Fluentd, Fluent Bit or OpenTelemetry
// receiver. A session is one connection to the first server of the list that can be
// reached. Its batches are pipelined, and are answered when the server has acknowledged
// them, or, with Config.NoAck, when they are written.
//
//	Open ─▶ dial, TLS, handshake
//	Send ──────frames──────▶ server
//	                           │
//	Answer ◀── reader ◀──acks──┘
//
// A Client sends nothing twice and holds nothing: retries, fallbacks and dead letters
// are the business of package deliver. When a batch is sent again its chunks keep their
// ids. Delivery is at least once: after a lost connection up to Window batches may
// arrive twice.
//
// Goroutines: a reader for each session, which sees acknowledgements and the end of the
// connection at once, and, while a server further down the list is used, sometimes one
// that tries those before it. Both end with their session.
type Client struct {
	c       *resolved
	seed    maphash.Seed
	salt    uint64
	framer  *framer // of the session that is open
	roster  *roster
	awaited *awaited
	counts  counts
	reports *reports
}

// Stats is a snapshot of a [Client].
type Stats struct {
	Server      string // in use; empty: none
	Connects    uint64
	Frames      uint64 // written
	Bytes       uint64 // written, frames and all
	Acks        uint64
	UnknownAcks uint64 // for no chunk that was waiting
	Lost        uint64 // connections that ended while something was waiting
	Refused     uint64 // records that no frame may hold: too large, unknown tag
	// LearnedFrame and LearnedRecord are limits of the server used last, in bytes of payload,
	// that it has shown by ending connections: frames are no larger than the first, and
	// records of the second and above go to the dead letters at once. Each is forgotten
	// when something larger is taken. The first is believed for an hour, the second for a
	// minute at first (ADR 31). 0: none is known.
	LearnedFrame, LearnedRecord int
	LastError                   string
}

// counts are the Stats of a Client while they change.
type counts struct {
	mu sync.Mutex // leaf
	Stats
}

func (c *counts) add(fn func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn(&c.Stats)
}

// NewClient returns a Client. It connects when there is something to send, so the server
// may come up later. The error names everything that is wrong with c.
func NewClient(c Config) (*Client, error) {
	r, err := c.resolve()
	if err != nil {
		return nil, err
	}
	return newClient(r), nil
}

func newClient(r *resolved) *Client {
	return &Client{
		c: r, seed: maphash.MakeSeed(), salt: rand.Uint64(), framer: newFramer(r),
		roster: newRoster(r.servers), awaited: newAwaited(), reports: newReports(&r.Config),
	}
}

// Traits asks for batches of one frame, of which Config.Window may be under way.
func (c *Client) Traits() deliver.Traits {
	t := deliver.Traits{
		Limits: batch.Limits{Bytes: c.c.FrameBytes}, Window: c.c.Window,
		Accepts: accepts, Dictionary: Tags(), Refused: c.refused,
	}
	if c.c.DryRun != nil {
		t.Window = 1
	}
	return t
}

func accepts(contentType string) bool { return contentType == entryType }

// Stats returns a snapshot. It does not wait for the server.
func (c *Client) Stats() Stats {
	c.counts.mu.Lock()
	st := c.counts.Stats
	c.counts.mu.Unlock()
	st.LearnedFrame, st.LearnedRecord = c.roster.learned()
	return st
}

// Open connects to a server and greets it, see [deliver.Destination]. It tries the
// servers in order; those that failed lately come last.
func (c *Client) Open(l deliver.Life) (deliver.Session, error) {
	if c.c.DryRun != nil {
		return c.openDry(l)
	}
	nc, err := c.connect(l.Context())
	if err != nil {
		c.counts.add(func(st *Stats) { st.LastError = err.Error() })
		return nil, err
	}
	return newSession(c, l, nc), nil
}

// connect connects to the first server that can be connected to.
func (c *Client) connect(ctx context.Context) (*conn, error) {
	var errs []error
	refused := true
	for _, i := range c.roster.order() {
		nc, err := c.dial(ctx, i)
		if err == nil {
			c.roster.connected(i)
			c.roster.turned(i)
			c.counts.add(func(st *Stats) { st.Connects, st.Server = st.Connects+1, nc.label })
			return nc, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		c.roster.failed(i, c.c.ReconnectMin, c.c.ReconnectMax)
		errs = append(errs, err)
		refused = refused && errors.Is(err, errRefused)
	}
	err := errors.Join(errs...)
	if refused {
		return nil, batch.Fatal(err)
	}
	return nil, err
}

// lookBack reports whether a server better than the one with that index can be connected to
// again.
func (c *Client) lookBack(ctx context.Context, index int) bool {
	for _, i := range c.roster.promising(index) {
		if nc, err := c.dial(ctx, i); err == nil {
			nc.close()
			c.roster.connected(i)
			return true
		}
	}
	return false
}

// nextLook returns when better servers are to be tried next, at random, so that clients
// that lost a server together do not come back together; zero for never.
func (c *Client) nextLook() time.Time {
	d := c.c.Failback
	if d < 0 {
		return time.Time{}
	}
	return time.Now().Add(backoff.Jitter(d-d/4, d))
}

// refused notes that the outlet has given up b: it may have been too large.
func (c *Client) refused(cause error, b *batch.Batch) {
	if b.Len() == 1 {
		rec := b.At(0)
		_, entry, _ := splitTag(rec.Data)
		c.roster.condemned(len(entry))
	}
	c.awaited.refused(cause, b)
}

// due reports whether it is time for what was last done then; every 0 or less: never.
func due(last time.Time, every time.Duration) bool {
	return every > 0 && time.Since(last) >= every
}
