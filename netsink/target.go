package netsink

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// A target is a parsed destination.
type target struct {
	network string     // "tcp" or "unix", for Config.Dial
	address string     // HOST:PORT or a path, for Config.Dial
	tls     bool       // the scheme is tls or syslog+tls
	syslog  bool       // records are syslog messages instead of lines
	query   url.Values // fields of the syslog header
}

// forms lists the forms of a destination for errors.
const forms = "tcp://HOST:PORT, tls://HOST:PORT, unix:PATH, or one of them with syslog+ before it"

// parse parses a destination. Its errors contain only the scheme of an invalid destination, because
// the remainder may contain a password.
func parse(s string) (t target, err error) {
	scheme, rest, ok := strings.Cut(s, ":")
	if !ok {
		return t, errors.New("it has no scheme: want " + forms)
	}
	kind := strings.ToLower(scheme)
	kind, t.syslog = strings.CutPrefix(kind, "syslog+")
	rest, query, hasQuery := strings.Cut(rest, "?")
	if hasQuery {
		if t.query, err = url.ParseQuery(query); err != nil {
			return t, errors.New("the text after ? is not a query, such as ?app=name")
		}
	}
	switch kind {
	case "tcp", "tls":
		t.network, t.tls = "tcp", kind == "tls"
		t.address, err = hostPort(kind, rest)
	case "unix":
		t.network = "unix"
		t.address = pathIn(strings.TrimPrefix(rest, "//"))
		if t.address == "" {
			err = errors.New("the socket is missing: want unix:PATH")
		}
	default:
		err = fmt.Errorf("unknown scheme %q: want %s", scheme, forms)
	}
	return t, err
}

// pathIn decodes the path of a socket: %3F becomes a question mark, and %25 a percent sign.
var pathIn = strings.NewReplacer("%3F", "?", "%3f", "?", "%25", "%").Replace

// hostPort returns HOST:PORT from rest, the text after the scheme kind.
func hostPort(kind, rest string) (string, error) {
	rest, ok := strings.CutPrefix(rest, "//")
	if !ok {
		return "", fmt.Errorf("want %s://HOST:PORT", kind)
	}
	rest = strings.TrimSuffix(rest, "/")
	if strings.ContainsAny(rest, "@/#") {
		return "", fmt.Errorf("want %s://HOST:PORT without a user or a path", kind)
	}
	host, port, err := net.SplitHostPort(rest)
	if err != nil || host == "" || port == "" {
		return "", fmt.Errorf("%q is not a host and port: want %s://HOST:PORT, with brackets around an IPv6 address", rest, kind)
	}
	if n, err := strconv.Atoi(port); err == nil && (n < 1 || n > math.MaxUint16) {
		return "", fmt.Errorf("its port is %s, but ports are 1 to 65535", port)
	}
	return rest, nil
}

// String returns the destination without its query.
func (t *target) String() string {
	kind := t.network
	if t.tls {
		kind = "tls"
	}
	if t.syslog {
		kind = "syslog+" + kind
	}
	if t.network == "unix" {
		return kind + ":" + t.address
	}
	return kind + "://" + t.address
}
