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
	label   string // name in messages and Stats
	weight  int    // share of the connections; 0: servers are used in order
	standby bool   // used only while no other server works
}

// parseServer parses an address of Config.Servers. A HOST without a port gets port 24224. The error
// does not repeat an address that may contain a password.
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
	if strings.Contains(text, "@") { // user:password@host
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

// A roster is the list of servers of a Driver and their recent health. Servers are identified by their
// index in servers, which is the order of preference: first those of Config.Servers, then those of
// Config.Standby. Its methods are safe for concurrent use.
type roster struct {
	servers []*server // constant

	mu     sync.Mutex // leaf lock; guards the fields below
	health []health   // by index of the server
	last   int        // the server that was connected to last
}

// newRoster returns a roster of servers without a history.
func newRoster(servers []*server) *roster {
	return &roster{servers: servers, health: make([]health, len(servers))}
}

// health is the recent history of a server. roster.mu guards it.
type health struct {
	failures int       // consecutive failed attempts to connect
	mute     int       // consecutive sessions that ended because the server did not respond
	until    time.Time // the server is skipped until this time, if another is available
	ends     int       // consecutive connections with NoAck that the server ended within a minute
	hangUps  int       // consecutive connections with NoAck that it ended within hangUpWithin
	credit   int       // accumulated weight: the server with the most is used next
	limits   limits
}

// muteMax bounds the time for which a server that does not respond is skipped. It is longer than the
// default of ReconnectMax, because each attempt holds records back for AckTimeout.
const muteMax = 10 * time.Minute

// skip sets until for the n-th consecutive time, counting from 0: to least, doubled each time up to
// most, with jitter.
func (h *health) skip(least, most time.Duration, n int) {
	d := backoff.Ceil(least, most, n)
	h.until = time.Now().Add(backoff.Jitter(d/2, d))
}

// failed notes that connecting to the server failed. The server is skipped for least, twice as long
// after each further failure, at most for most.
func (h *health) failed(least, most time.Duration) {
	h.skip(least, most, h.failures)
	h.failures++
}

// silent notes that the server accepted a connection and records and did not respond. The server is
// skipped for least, twice as long each time, at most for muteMax.
func (h *health) silent(least time.Duration) {
	h.skip(least, muteMax, h.mute)
	h.mute++
}

// order returns all indexes in the order in which to connect. Servers that are not skipped come first,
// then those that failed to connect, then those that did not respond. Within each of these, servers on
// standby come last, and the others are ordered by weight or else by preference.
func (r *roster) order() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	rank := func(i int) int { // 0: not skipped; 1: failed to connect; 2: did not respond
		switch h := &r.health[i]; {
		case !now.Before(h.until):
			return 0
		case h.mute == 0:
			return 1
		}
		return 2
	}
	due := func(i int) int { return r.health[i].credit + r.servers[i].weight } // 0 without weights
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

// selected notes that server i is in use. If it is weighted, this is one step of smooth weighted
// round-robin, as in nginx: the credit of each available server grows by its weight, and the credit of
// the server in use falls by the sum of these weights.
func (r *roster) selected(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = i
	if r.servers[i].weight == 0 || r.servers[i].standby {
		return
	}
	// Only available servers share the time: the share of a skipped server goes to the others.
	now, sum := time.Now(), 0
	for k, s := range r.servers {
		if !s.standby && !now.Before(r.health[k].until) {
			r.health[k].credit += s.weight
			sum += s.weight
		} else {
			r.health[k].credit = 0 // a server that is back receives its usual share, not more
		}
	}
	r.health[i].credit -= sum
}

// weighted reports whether servers are selected by weight, which needs at least two.
func (r *roster) weighted() bool {
	n := 0
	for _, s := range r.servers {
		if s.weight > 0 && !s.standby {
			n++
		}
	}
	return n > 1
}

// hasPreferred reports whether there are servers preferred to server index.
func (r *roster) hasPreferred(index int) bool { return len(r.preferred(index)) > 0 }

// preferred returns the servers that are preferred to server index: for a server on standby all of
// Config.Servers and the earlier ones on standby, otherwise the earlier ones, unless servers have
// weights.
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

// learned returns the learned limits, in bytes of payload, of the server that was connected to last.
// 0 means no limit.
func (r *roster) learned() (frame, record int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &r.health[r.last].limits
	now := time.Now()
	l.forget(now)
	return l.frame, l.records.size(now)
}

// promising returns the servers preferred to server index, without those that are skipped because they
// did not respond: for these a successful connection would prove nothing.
func (r *roster) promising(index int) (before []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, i := range r.preferred(index) {
		if h := &r.health[i]; h.mute == 0 || !now.Before(h.until) {
			before = append(before, i)
		}
	}
	return before
}

// connected notes that connecting to server i succeeded. A server that is skipped because it did not
// respond stays skipped.
func (r *roster) connected(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &r.health[i]
	// Accepting a connection does not show that a server that was silent responds again.
	if h.failures = 0; h.mute == 0 {
		h.until = time.Time{}
	}
}

// failed notes that connecting to server i failed. The other parameters are those of health.failed.
func (r *roster) failed(i int, least, most time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.health[i].failed(least, most)
}

// answered notes that server i has acknowledged a frame. The server is no longer skipped.
func (r *roster) answered(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.health[i].mute, r.health[i].until = 0, time.Time{}
}

// silent notes that a session ended because server i did not respond.
func (r *roster) silent(i int, least time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.health[i].silent(least)
}

// ended notes that server i ended a connection with NoAck of the given lifetime. A lifetime of a
// minute or more shows that the server does not close after one message.
func (r *roster) ended(i int, lived time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := &r.health[i]; lived < time.Minute {
		h.ends++
	} else {
		h.ends = 0
	}
}

// probeTime returns how long to wait for server i to close a connection after its first message. The
// wait covers the round trips of the message and of the FIN, for which dialled, the time to connect, is
// the measure. It grows with the number of connections that the server ended, because the probe may
// have been too short for that server.
func (r *roster) probeTime(i int, dialled time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return backoff.Ceil(probeMin+3*dialled, probeMax, 2*r.health[i].ends)
}

// probeMin and probeMax limit the result of roster.probeTime. Records are held back for that time once
// per connection.
const (
	probeMin = 20 * time.Millisecond
	probeMax = time.Second
)
