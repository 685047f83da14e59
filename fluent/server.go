package fluent

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/forebay-log/forebay/internal/backoff"
)

// A server is one address and how it has done lately. The Client's sender alone
// uses what changes.
type server struct {
	network string // tcp or unix
	address string
	host    string // for the certificate
	tls     bool
	label   string // for people

	failures int // to connect, in a row
	until    time.Time
	err      error
	shaky    bool // it takes connections, but acknowledged nothing the last time
	mute     int  // connections in a row without an acknowledgement
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
		return nil, errors.New("fluent: a server address holds no user and password: use Config.User and Config.Password")
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
		host, port = strings.TrimSuffix(strings.TrimPrefix(rest, "["), "]"), strconv.Itoa(DefaultPort)
		if strings.Contains(host, ":") && net.ParseIP(host) == nil {
			return fail("the port cannot be told from the host")
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

// failed notes that the server could not be connected to.
func (s *server) failed(err error, lo, hi time.Duration) {
	s.err, s.shaky = err, false
	s.passOver(lo, hi, s.failures)
	s.failures++
}

// worked notes that the server could be connected to. That is no proof that it
// acknowledges anything.
func (s *server) worked() { s.failures, s.until, s.err, s.shaky = 0, time.Time{}, nil, false }

// muteMax bounds how long a server that only takes connections is passed over.
const muteMax = 10 * time.Minute

// silent notes that the server took a connection and records, and acknowledged
// none: it is passed over for a while, twice as long each time.
func (s *server) silent(err error, lo time.Duration) {
	s.err, s.shaky = err, true
	s.passOver(lo, muteMax, s.mute)
	s.mute++
}

// passOver has the server passed over for the n-th time, counting from 0.
func (s *server) passOver(lo, hi time.Duration, n int) {
	d := backoff.Ceil(lo, hi, n)
	s.until = time.Now().Add(backoff.Jitter(d/2, d))
}
