package fluent

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/forebay-log/forebay/internal/backoff"
)

// A server is an entry of Config.Servers or Config.Standby.
type server struct {
	network string // "tcp" or "unix", for Config.Dial
	address string // HOST:PORT or a path, for Config.Dial
	host    string // name that the certificate must have; "" for unix
	tls     bool   // the scheme is tls://
	label   string // name in errors and Stats
	weight  int    // share of the connections; 0: servers are used in the order of preference
	standby bool   // used only while no server of Config.Servers is available
}

// defaultPort is the port of a server whose address has none.
const defaultPort = 24224

// parseServer parses an address of Config.Servers. A HOST without a port gets port 24224. The error
// does not contain the address if the address may contain a password.
func parseServer(text string) (*server, error) {
	fail := func(why string) (*server, error) {
		return nil, fmt.Errorf("fluent: server %q: %s; write HOST, HOST:PORT, tcp://HOST:PORT, tls://HOST:PORT or unix:PATH", text, why)
	}
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		path = strings.TrimPrefix(path, "//")
		if path == "" {
			return fail("it has no path")
		}
		return &server{network: "unix", address: path, label: "unix:" + path}, nil
	}
	if strings.Contains(text, "@") { // the address has the form user:password@host
		return nil, errors.New("fluent: a server address must not contain a user or password: use Config.Auth")
	}
	s := &server{network: "tcp"}
	rest, isTLS := strings.CutPrefix(text, "tls://")
	s.tls = isTLS
	if !isTLS {
		rest = strings.TrimPrefix(rest, "tcp://")
	}
	if strings.Contains(rest, "://") {
		return fail("this scheme is not known")
	}
	rest = strings.TrimSuffix(rest, "/")
	host, port, err := net.SplitHostPort(rest)
	if err != nil {
		host, port = strings.TrimSuffix(strings.TrimPrefix(rest, "["), "]"), strconv.Itoa(defaultPort)
		if strings.Contains(host, ":") && net.ParseIP(host) == nil {
			return fail("host and port are ambiguous")
		}
	}
	if host == "" || strings.ContainsAny(host, "/?# \t\n") {
		return fail("it has no valid host")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return fail("the port must be 1 to 65535")
	}
	s.host, s.address = host, net.JoinHostPort(host, port)
	s.label = s.address
	return s, nil
}

// A roster contains the servers of a Driver and their recent failures. A server is identified by
// its index in the field servers. The indexes are in the order of preference: first Config.Servers,
// then Config.Standby. All methods are safe for concurrent use.
type roster struct {
	servers []*server // immutable

	mu     sync.Mutex // guards the fields below; no other lock is acquired under it
	health []health   // by index of the server
	last   int        // server of the last connection
}

// newRoster returns a roster of servers without recorded failures.
func newRoster(servers []*server) *roster {
	return &roster{servers: servers, health: make([]health, len(servers))}
}

// The type health is the recent history of a server. roster.mu guards it.
type health struct {
	failures     int       // consecutive failed attempts to connect
	unresponsive int       // consecutive sessions that ended because the server did not respond
	until        time.Time // the server is skipped until this time, if another one is available
	ends         int       // consecutive connections with NoAck that the server ended within a minute
	hangUps      int       // consecutive connections with NoAck that the server ended within hangUpWithin
	credit       int       // accumulated weight; the server with the largest credit is used next
	limits       limits
}

// maxUnresponsiveSkip is the longest time for which a server that does not respond is skipped. It
// is longer than the default of ReconnectMax, because each attempt delays records by AckTimeout.
const maxUnresponsiveSkip = 10 * time.Minute

// skip causes the server to be skipped for a random time between d/2 and d, where d is minSkip for
// n = 0. It doubles with n, the number of consecutive calls before this one, up to maxSkip.
func (h *health) skip(minSkip, maxSkip time.Duration, n int) {
	d := backoff.Ceil(minSkip, maxSkip, n)
	h.until = time.Now().Add(backoff.Jitter(d/2, d))
}

// recordFailure is called when the client could not connect to the server. The server is skipped
// for minSkip. Each further failure doubles the duration, up to maxSkip.
func (h *health) recordFailure(minSkip, maxSkip time.Duration) {
	h.skip(minSkip, maxSkip, h.failures)
	h.failures++
}

// recordSilence is called when the server has accepted a connection and records but does not
// respond. The server is skipped for minSkip. Each further call doubles the duration, up to
// maxUnresponsiveSkip.
func (h *health) recordSilence(minSkip time.Duration) {
	h.skip(minSkip, maxUnresponsiveSkip, h.unresponsive)
	h.unresponsive++
}

// order returns the indexes of all servers in the order in which to try them. Servers that are not
// skipped come first, then servers that failed to connect, then servers that did not respond.
// Within each of these classes, standby servers come last. The other servers are ordered by weight
// or, without weights, by preference.
func (r *roster) order() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	rank := func(i int) int { // 0: not skipped; 1: failed to connect; 2: did not respond
		switch h := &r.health[i]; {
		case !now.Before(h.until):
			return 0
		case h.unresponsive == 0:
			return 1
		}
		return 2
	}
	// The function due returns the credit that server i would have for the next connection. Without
	// weights it is 0 for all servers.
	due := func(i int) int { return r.health[i].credit + r.servers[i].weight }
	standby := func(i int) int {
		if r.servers[i].standby {
			return 1
		}
		return 0
	}
	order := make([]int, len(r.servers))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(rank(a)-rank(b), standby(a)-standby(b), due(b)-due(a))
	})
	return order
}

// noteSelected is called when server i is used next. With weights, this is one step of the smooth
// weighted round-robin of nginx: the credit of each available server grows by its weight, and the
// credit of the used server is reduced by the sum of these weights.
func (r *roster) noteSelected(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = i
	if r.servers[i].weight == 0 || r.servers[i].standby {
		return
	}
	// A skipped server receives no credit, so the other servers divide its share among themselves.
	now, sum := time.Now(), 0
	for k, s := range r.servers {
		if !s.standby && !now.Before(r.health[k].until) {
			r.health[k].credit += s.weight
			sum += s.weight
		} else {
			// Without credit, a skipped server receives only its usual share when it is available
			// again.
			r.health[k].credit = 0
		}
	}
	r.health[i].credit -= sum
}

// weighted reports whether servers are selected by weight. This is the case if at least two servers
// have a weight.
func (r *roster) weighted() bool {
	n := 0
	for _, s := range r.servers {
		if s.weight > 0 && !s.standby {
			n++
		}
	}
	return n > 1
}

// hasPreferred reports whether any server is preferred to the server with the given index.
func (r *roster) hasPreferred(index int) bool { return len(r.preferred(index)) > 0 }

// preferred returns the servers that are preferred to the server with the given index. For a
// standby server these are all of Config.Servers and the standby servers before it. For any other
// server these are the servers before it, or none if servers have weights.
func (r *roster) preferred(index int) []int {
	var out []int
	at := r.servers[index]
	for i, s := range r.servers {
		if at.standby && !s.standby || at.standby == s.standby && at.weight == 0 && i < index {
			out = append(out, i)
		}
	}
	return out
}

// learned returns the size limits that were learned for the server of the last connection, in bytes
// of payload. 0 means no limit.
func (r *roster) learned() (frame, record int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &r.health[r.last].limits
	now := time.Now()
	l.forget(now)
	return l.frame, l.records.size(now)
}

// promising returns the servers that are preferred to the server with the given index and worth a
// test. It omits servers that did not respond recently. They accept connections, so a successful
// connection would prove nothing.
func (r *roster) promising(index int) (before []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, i := range r.preferred(index) {
		if h := &r.health[i]; h.unresponsive == 0 || !now.Before(h.until) {
			before = append(before, i)
		}
	}
	return before
}

// noteConnected is called when the client has connected to server i. If the server is skipped
// because it did not respond, it remains skipped.
func (r *roster) noteConnected(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &r.health[i]
	if h.failures = 0; h.unresponsive == 0 {
		h.until = time.Time{}
	}
}

// recordFailure is called when the client could not connect to server i. For minSkip and maxSkip,
// see health.recordFailure.
func (r *roster) recordFailure(i int, minSkip, maxSkip time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.health[i].recordFailure(minSkip, maxSkip)
}

// recordAnswer is called when server i has acknowledged a frame. The server is no longer skipped.
func (r *roster) recordAnswer(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.health[i].unresponsive, r.health[i].until = 0, time.Time{}
}

// recordSilence is called when a session has ended because server i did not respond. For minSkip, see
// health.recordSilence.
func (r *roster) recordSilence(i int, minSkip time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.health[i].recordSilence(minSkip)
}

// recordEnd is called when server i has ended a connection with NoAck. The parameter lived is how
// long the connection was open. A minute or more proves that the server does not close a connection
// after one message.
func (r *roster) recordEnd(i int, lived time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := &r.health[i]; lived < time.Minute {
		h.ends++
	} else {
		h.ends = 0
	}
}

// Without acknowledgements, the client cannot distinguish a server that reads records from one that
// only accepts connections, such as a proxy without a backend, or the port of another protocol.
// Therefore the event "no-ack" is posted when a server has ended hangUps consecutive connections,
// each within hangUpWithin of its beginning. A single early end is normal: the server may have
// restarted, or read only one message per connection.
const (
	hangUps      = 10
	hangUpWithin = 5 * time.Second
)

// noteHangUp is called when server i has ended a connection that was open for the duration lived.
// It reports whether the event "no-ack" must be posted now. This is the case once in a series of
// short connections, at connection number hangUps. A longer connection ends the series.
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

// probeTime returns how long to wait for server i to close a connection after its first message.
// The wait covers the round trips of the message and of the FIN, so it includes a multiple of
// dialled, the time to connect. It grows with the number of connections that the server has ended,
// because the earlier waits may have been too short.
func (r *roster) probeTime(i int, dialled time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return backoff.Ceil(probeMin+3*dialled, probeMax, 2*r.health[i].ends)
}

// probeMin and probeMax limit the result of roster.probeTime. Records are delayed by that time once
// per connection.
const (
	probeMin = 20 * time.Millisecond
	probeMax = time.Second
)

// sizes returns maxSizes after reducing it to the limits that were learned for server i.
func (r *roster) sizes(i int, maxSizes bounds) bounds {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &r.health[i].limits
	if l.until.IsZero() && l.records.validUntil.IsZero() {
		return maxSizes
	}
	now := time.Now()
	l.forget(now)
	if l.frame > 0 {
		maxSizes.frame = min(maxSizes.frame, l.frame)
	}
	if n := l.records.size(now); n > 0 && n <= maxSizes.record {
		maxSizes.record, maxSizes.refused, maxSizes.server = n-1, n, r.servers[i].label
	}
	return maxSizes
}

// proven returns a payload size, in bytes. If a frame to server i is larger, the next frame waits
// for the acknowledgement of that frame. See session.putInOrder for the reason.
func (r *roster) proven(i int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &r.health[i].limits
	if l.forget(time.Now()); l.frame > 0 {
		return l.frame
	}
	return max(leastLimit, l.proven)
}

// noteAccepted is called when server i has accepted a frame of n bytes.
func (r *roster) noteAccepted(i, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.health[i].limits.noteAccepted(time.Now(), n)
}

// noteEndedAt is called when a session with server i has ended while its oldest unacknowledged
// frame had n bytes. For single and silent, see limits.noteEnded.
func (r *roster) noteEndedAt(i, n int, single, silent bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.health[i].limits.noteEnded(time.Now(), n, single, silent)
}

// noteCondemned is called when package deliver has given up a record of n bytes.
func (r *roster) noteCondemned(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.health {
		r.health[i].limits.noteCondemned(time.Now(), n)
	}
}
