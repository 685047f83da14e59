package fluent

import (
	"errors"
	"fmt"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/callback"
)

// reports passes findings of a Client that no answer contains to Config.OnError. Posting never
// blocks.
type reports struct {
	name string
	run  *callback.Runner[batch.Event]
}

func newReports(c *Config) *reports {
	onError := c.OnError
	if onError == nil {
		onError = callback.ToStderr[batch.Event]
	}
	return &reports{name: c.Name, run: callback.New(onError, 0)}
}

func (r *reports) post(op string, err error) {
	r.run.Post(batch.Event{Output: r.name, Op: op, Err: err})
}

// Without acknowledgements, a server that accepts data cannot be distinguished from one that only
// accepts connections: a proxy without a backend, or the port of another protocol. If the server
// ends hangUps consecutive connections within hangUpWithin, that is reported.
const (
	hangUps      = 10
	hangUpWithin = 5 * time.Second
)

var errHangUps = errors.New("without acknowledgements (NoAck, --no-ack), records counted as delivered may be lost: " +
	"use acknowledgements, unless it is a Forward server with one message per connection")

// hungUp records that a server ended a connection to which data was written, without
// acknowledgements.
func (s *session) hungUp() {
	if s.c.roster.hungUp(s.conn.index, time.Since(s.conn.opened)) {
		s.c.reports.post("no-ack", fmt.Errorf("fluent: %s ended %d connections in a row soon after they were opened; %w", s.conn.label, hangUps, errHangUps))
	}
}

// hungUp records that a server ended a connection of the given lifetime, and reports whether an
// event must be posted.
func (r *roster) hungUp(i int, lived time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &r.health[i]
	if lived >= hangUpWithin {
		h.hangUps = 0
		return false
	}
	h.hangUps++
	return h.hangUps == hangUps
}
