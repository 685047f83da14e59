package fluent

import (
	"errors"
	"fmt"
	"time"
)

// Without acknowledgements, a server that accepts data cannot be distinguished from one that only
// accepts connections: a proxy without a backend, or the port of another protocol. If the server
// ends hangUps consecutive connections within hangUpWithin, that is reported.
const (
	hangUps      = 10
	hangUpWithin = 5 * time.Second
)

var errHangUps = errors.New("without acknowledgements (NoAck, --no-ack), records counted as delivered may be lost: " +
	"use acknowledgements, unless this Forward server ends each connection after one message")

// hungUp records that a server ended a connection to which data was written, without
// acknowledgements.
func (s *session) hungUp() {
	if s.c.roster.hungUp(s.conn.index, time.Since(s.conn.opened)) {
		s.c.reports.Post("no-ack", fmt.Errorf("fluent: %s ended %d connections in a row soon after they were opened; %w", s.conn.label, hangUps, errHangUps), 0)
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
