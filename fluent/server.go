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

// A server is the address of a server and its role.
type server struct {
	network string // tcp or unix
	address string
	host    string // for the certificate
	tls     bool
	label   string // name in messages
	weight  int    // share of the connections; 0: servers are used in order
	standby bool   // used only while no other server works
}

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
	if strings.Contains(text, "@") { // may hold a password: not repeated
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

// A roster is the list of servers and their recent health.
type roster struct {
	servers []*server

	mu     sync.Mutex // leaf lock; guards the fields below
	health []health   // by index of the server
	last   int        // index of the last server connected
}

func newRoster(servers []*server) *roster {
	return &roster{servers: servers, health: make([]health, len(servers))}
}

// health is the recent history of a server.
type health struct {
	failures int       // consecutive failed attempts to connect
	mute     int       // consecutive sessions that ended because of its silence
	until    time.Time // the server is skipped until this time, if another is available
	ends     int       // consecutive connections without acknowledgements that it ended
	hangUps  int       // the number of these that lived for at most hangUpWithin
	credit   int       // accumulated weight: the server with the most is used next
	limits   limits
}

// muteMax bounds the time for which a server that does not respond is skipped.
const muteMax = 10 * time.Minute

// passOver skips the server for the n-th time, counting from 0.
func (h *health) passOver(least, most time.Duration, n int) {
	d := backoff.Ceil(least, most, n)
	h.until = time.Now().Add(backoff.Jitter(d/2, d))
}

// failed records that connecting to the server failed.
func (h *health) failed(least, most time.Duration) {
	h.passOver(least, most, h.failures)
	h.failures++
}

// silent records that the server accepted a connection and records and did not respond. It is
// skipped for a while, twice as long each time.
func (h *health) silent(least time.Duration) {
	h.passOver(least, muteMax, h.mute)
	h.mute++
}

// order returns the indexes of the servers in the order to try them: by preference or by weight,
// then those on standby. Skipped servers come last, and of these the silent ones after the
// others.
func (r *roster) order() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	rank := func(i int) int {
		switch h := &r.health[i]; {
		case !now.Before(h.until):
			return 0
		case h.mute == 0:
			return 1
		}
		return 2
	}
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

// selected records that a server is in use. If it is weighted, each weighted server gains its
// weight, and the one in use pays the sum.
func (r *roster) selected(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = i
	if r.servers[i].weight == 0 || r.servers[i].standby {
		return
	}
	now, sum := time.Now(), 0
	for k, s := range r.servers {
		if !s.standby && !now.Before(r.health[k].until) {
			r.health[k].credit += s.weight
			sum += s.weight
		} else {
			r.health[k].credit = 0 // its missed share is not made up for
		}
	}
	r.health[i].credit -= sum
}

// weighted reports whether servers are selected by weight.
func (r *roster) weighted() bool {
	n := 0
	for _, s := range r.servers {
		if s.weight > 0 && !s.standby {
			n++
		}
	}
	return n > 1
}

// hasBetter reports whether there are servers better than the one with that index.
func (r *roster) hasBetter(index int) bool { return len(r.better(index)) > 0 }

// better returns the indexes of the servers that are preferred to the one with that index.
func (r *roster) better(index int) []int {
	var out []int
	at := r.servers[index]
	for i, s := range r.servers {
		if at.standby && !s.standby || at.standby == s.standby && at.weight == 0 && i < index {
			out = append(out, i)
		}
	}
	return out
}

// learned returns the limits of the server that was connected to last.
func (r *roster) learned() (frame, record int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &r.health[r.last].limits
	now := time.Now()
	l.forget(now)
	return l.frame, l.records.size(now)
}

// promising returns the servers preferred to the one with that index, except those that are
// skipped because they were silent.
func (r *roster) promising(index int) (before []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, i := range r.better(index) {
		if h := &r.health[i]; h.mute == 0 || !now.Before(h.until) {
			before = append(before, i)
		}
	}
	return before
}

// connected records that a connection succeeded. That does not prove that the server responds.
func (r *roster) connected(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &r.health[i]
	if h.failures = 0; h.mute == 0 {
		h.until = time.Time{}
	}
}

// failed records that connecting to a server failed.
func (r *roster) failed(i int, least, most time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.health[i].failed(least, most)
}

// answered records that a server has acknowledged something.
func (r *roster) answered(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.health[i].mute, r.health[i].until = 0, time.Time{}
}

// silent records that a session ended because the server did not respond.
func (r *roster) silent(i int, least time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.health[i].silent(least)
}

// ended records that a server ended a connection without acknowledgements of the given lifetime.
func (r *roster) ended(i int, lived time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := &r.health[i]; lived < time.Minute {
		h.ends++
	} else {
		h.ends = 0
	}
}

// probeTime returns how long to wait for the end of a connection after its first message.
// dialled is the time it took to connect. See alone.go.
func (r *roster) probeTime(i int, dialled time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return backoff.Ceil(probeMin+3*dialled, probeMax, 2*r.health[i].ends)
}

// probeMin and probeMax limit the time of a probe, see alone.go.
const (
	probeMin = 20 * time.Millisecond
	probeMax = time.Second
)
