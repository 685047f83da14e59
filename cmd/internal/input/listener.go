package input

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/listen"
	"github.com/forebay-log/forebay/cmd/internal/setting"
)

// A ListenConfig contains listeners and the options that they have in common.
type ListenConfig struct {
	Listeners    []*Listener
	MaxMessage   setting.Size
	MaxConns     setting.Count
	KeyFile      string // file with the shared key of the Forward protocol
	User         string
	PasswordFile string
	TlsCert      string
	TlsKey       string
	TlsClientCA  string
	Quiet        bool  // do not print addresses
	Slow         int64 // number of bytes to read per second from each connection; 0: no limit
}

// NewMaxConns returns the setting --max-conns with its default and limits.
func NewMaxConns() *setting.Count { return setting.CountBetween(256, 1, 0) }

// NewMaxMessage returns the setting --max-message with its default and limits.
func NewMaxMessage() *setting.Size { return setting.SizeBetween(32<<20, 64<<10, 256<<20) }

// A Listener is a protocol, and the address at which it is served. As a pflag.Value, it is the flag
// that selects both.
type Listener struct {
	Flag, Usage string
	what        string // name of the protocol in messages
	protocol    string // "http" if messages show the address as a URL
	Address     string // default address
	ByDefault   bool   // start the listener if no flag selects a listener
	open        func(*Receiver, *Listener) (server, error)

	On    bool
	Value string
	input string // name of the input in the configuration file; "" if a flag selected the listener
}

// displayName returns the flag of the listener or the name of its input, for messages.
func (l *Listener) displayName() string {
	if l.input != "" {
		return l.input
	}
	return "--" + l.Flag
}

func (l *Listener) String() string { return l.Value }
func (*Listener) Type() string     { return "ADDR" }
func (l *Listener) Set(text string) error {
	if text == "" {
		return errors.New("the address is empty: use HOST:PORT or unix:PATH")
	}
	l.On, l.Value = true, text
	return nil
}

// ListenersHelp describes the flags for listeners, for --help.
func ListenersHelp(all []*Listener) string {
	var sb strings.Builder
	for _, l := range all {
		if l.ByDefault {
			fmt.Fprintf(&sb, "  --%-8s %s, %s\n", l.Flag, l.Address, l.what)
		}
	}
	return sb.String()
}

// split separates the network from an address such as udp://:514. at is a copy of l with the
// remaining address. If the address contains no network, network is "".
func (l *Listener) split() (at *Listener, network string) {
	listenerCopy := *l
	at = &listenerCopy
	if l.Flag != "syslog" {
		return at, ""
	}
	for _, network := range []string{"tcp", "udp"} {
		if rest, ok := strings.CutPrefix(l.Value, network+"://"); ok {
			at.Value = rest
			return at, network
		}
	}
	if path, ok := strings.CutPrefix(l.Value, "unixgram:"); ok {
		at.Value = "unix:" + path
		return at, "unixgram"
	}
	return at, ""
}

// Endpoints returns the addresses on which l listens. A syslog address without a network means both
// TCP and UDP.
func (l *Listener) Endpoints() ([]Endpoint, error) {
	at, given := l.split()
	network, address, err := at.Resolve()
	switch {
	case err != nil:
		return nil, err
	case given != "":
		return []Endpoint{{given, address}}, nil
	case l.Flag == "syslog" && network == "tcp":
		return []Endpoint{{"tcp", address}, {"udp", address}}, nil
	}
	return []Endpoint{{network, address}}, nil
}

// Resolve returns the network and the address for net.Listen.
func (l *Listener) Resolve() (network, address string, err error) {
	v := l.Value
	if v == "" {
		v = l.Address
	}
	if path, ok := strings.CutPrefix(v, "unix:"); ok {
		if path == "" {
			return "", "", fmt.Errorf("%s %s has no socket: write unix:PATH", l.displayName(), v)
		}
		return "unix", path, nil
	}
	host, port, _ := net.SplitHostPort(l.Address)
	if _, err := strconv.ParseUint(v, 10, 16); err == nil { // only a port: listen on the default host, which is local
		return "tcp", net.JoinHostPort(host, v), nil
	}
	h, p, err := net.SplitHostPort(v)
	if bare := strings.Trim(v, "[]"); err != nil && (net.ParseIP(bare) != nil || !strings.ContainsAny(v, ":/")) {
		h, p, err = bare, port, nil
	}
	if err != nil || strings.Contains(h, "/") {
		return "", "", fmt.Errorf("%s %s is not an address: use HOST:PORT or unix:PATH", l.displayName(), v)
	}
	if _, err := strconv.ParseUint(p, 10, 16); err != nil {
		return "", "", fmt.Errorf("%s %s: the port must be 0 to 65535", l.displayName(), v)
	}
	return "tcp", net.JoinHostPort(h, p), nil
}

// limits returns the limits for the servers of the listeners.
func (c *ListenConfig) limits() listen.Limits {
	l := listen.Limits{MessageBytes: int(c.MaxMessage.Value), Conns: c.MaxConns.Value}
	if c.Slow > 0 { // no message should exceed the time limits because of slow reads
		l.MessageTime, l.HelloTime = 1000*time.Hour, 100*time.Hour
	}
	return l
}
