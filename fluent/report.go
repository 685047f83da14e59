package fluent

import (
	"errors"
	"fmt"
	"time"
)

// Without acknowledgements, a server that reads records cannot be distinguished from one that only
// accepts connections. That can be a proxy without a backend, or the port of another protocol. The
// event "no-ack" is posted when a server ends hangUps consecutive connections, each within
// hangUpWithin of its beginning. A single early end is normal: the server may have restarted, or
// read only one message per connection.
const (
	hangUps      = 10
	hangUpWithin = 5 * time.Second
)

// errHangUps is the error of the event "no-ack", with advice.
var errHangUps = errors.New("without acknowledgements (NoAck, --no-ack), records counted as delivered may be lost: " +
	"use acknowledgements, unless this Forward server ends each connection after one message")

// noteHangUp records that the server has ended the connection of a session with NoAck after data was
// written. It posts the event "no-ack" if enough connections have ended.
func (s *session) noteHangUp() {
	if s.c.roster.noteHangUp(s.conn.index, time.Since(s.conn.opened)) {
		s.c.reports.Post("no-ack", fmt.Errorf("fluent: %s ended %d connections in a row soon after they were opened; %w", s.conn.label, hangUps, errHangUps), 0)
	}
}

// noteHangUp records that server i has ended a connection. lived is the duration for which the
// connection was open. The result reports whether the event "no-ack" is due. It is due once in a
// series of short connections, at the connection with number hangUps. A longer connection ends the
// series.
func (r *roster) noteHangUp(i int, lived time.Duration) bool {
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
