package fluent

import (
	"errors"
	"fmt"
	"time"
)

// Without acknowledgements, a server that reads records cannot be distinguished from one that only
// accepts connections: a proxy without a backend, or the port of another protocol. The event "no-ack"
// is posted when a server ends hangUps consecutive connections, each within hangUpWithin of its
// beginning. A single early end is normal: a restart, or a server that reads one message per
// connection.
const (
	hangUps      = 10
	hangUpWithin = 5 * time.Second
)

// errHangUps is the advice in the event "no-ack".
var errHangUps = errors.New("without acknowledgements (NoAck, --no-ack), records counted as delivered may be lost: " +
	"use acknowledgements, unless this Forward server ends each connection after one message")

// hungUp notes that the server ended the connection of a session with NoAck after data was written,
// and posts the event if one is due.
func (s *session) hungUp() {
	if s.c.roster.hungUp(s.conn.index, time.Since(s.conn.opened)) {
		s.c.reports.Post("no-ack", fmt.Errorf("fluent: %s ended %d connections in a row soon after they were opened; %w", s.conn.label, hangUps, errHangUps), 0)
	}
}

// hungUp notes that server i ended a connection of the given lifetime. It reports whether an event is
// due: once per row of hangUps connections. A connection that lives longer ends the row.
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
