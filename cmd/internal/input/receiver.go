package input

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/listen"
	"github.com/forebay-log/forebay/cmd/internal/listen/forward"
	"github.com/forebay-log/forebay/cmd/internal/listen/lokipush"
	"github.com/forebay-log/forebay/cmd/internal/listen/syslog"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/internal/neterr"
	"github.com/forebay-log/forebay/internal/secrets"
	"github.com/forebay-log/forebay/internal/tlsfiles"
	"github.com/forebay-log/forebay/internal/vfs"
)

// A server serves the connections of one listener. Each protocol has its own implementation.
type server interface {
	Stats() listen.Stats
	Close(context.Context) error
}

// A Receiver opens and closes the listeners of an input, or of the command forebay receive.
type Receiver struct {
	C        *ListenConfig
	Sink     listen.Sink
	Tls      *tls.Config // nil if TLS is not used
	Action   func(context.Context) listen.Action
	Reporter *Reporter
	Servers  []server
	Names    []string
}

// serverTLS returns the TLS configuration of the listeners, or nil if they do not use TLS.
func (c *ListenConfig) serverTLS() (*tls.Config, error) {
	if c.TlsCert == "" {
		return nil, nil
	}
	pair, err := tlsfiles.NewPair(c.TlsCert, c.TlsKey)
	if err != nil {
		return nil, fmt.Errorf("cannot load --tls-cert and --tls-key: %w", err)
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	pair.Server(t)
	return t, c.requireClientCerts(t)
}

// Listen opens the selected listeners and prints their addresses. If it returns an error, the
// listeners that are already open remain open until Close.
func (r *Receiver) Listen() error {
	var err error
	if r.Tls, err = r.C.serverTLS(); err != nil {
		return err
	}
	for _, l := range r.C.Listeners {
		if !l.On {
			continue
		}
		s, err := l.open(r, l)
		if err != nil {
			return err
		}
		r.Servers = append(r.Servers, s)
		r.Names = append(r.Names, l.Flag)
	}
	return nil
}

// requireClientCerts changes t so that clients need certificates, if --tls-client-ca is set.
func (c *ListenConfig) requireClientCerts(t *tls.Config) error {
	if c.TlsClientCA == "" {
		return nil
	}
	text, err := os.ReadFile(c.TlsClientCA)
	if err != nil {
		return fmt.Errorf("cannot read --tls-client-ca %s: %w", c.TlsClientCA, vfs.Cause(err))
	}
	t.ClientAuth, t.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	if !t.ClientCAs.AppendCertsFromPEM(text) {
		return fmt.Errorf("--tls-client-ca %s has no certificate in PEM form", c.TlsClientCA)
	}
	return nil
}

// bind opens the stream listener of l and prints its address.
func (r *Receiver) bind(l *Listener) (net.Listener, error) {
	network, address, err := l.Resolve()
	if err != nil {
		return nil, err
	}
	nl, err := bindTo(network, address)
	if err != nil {
		return nil, l.listenError(network, address, err)
	}
	if r.C.Slow > 0 {
		nl = slowListener{nl, r.C.Slow}
	}
	r.Listening(l, network, nl.Addr().String())
	if network != "unix" && r.Tls != nil {
		nl = tls.NewListener(nl, r.Tls)
	}
	return nl, nil
}

// Listening prints the address at which l listens. It adds a note if other machines can reach the
// address.
func (r *Receiver) Listening(l *Listener, network, at string) {
	if r.C.Quiet {
		return
	}
	local := network == "unix" || network == "unixgram" || loopback(at)
	switch {
	case network == "unix" || network == "unixgram":
		at = network + ":" + at
	case network == "udp":
		at = "udp://" + at
	case l.protocol == "http" && r.Tls != nil:
		at = "https://" + at
	case l.protocol == "http":
		at = "http://" + at
	case r.Tls != nil:
		at += " with TLS"
	}
	text := "listening for " + l.what + " on " + at
	if !local {
		text += ", reachable from other machines"
		if authenticated := l.Flag == "forward" && r.C.KeyFile != "" || r.C.TlsClientCA != ""; !authenticated {
			text += " without a key"
		}
	}
	r.Reporter.Line(text)
}

// loopback reports whether only this machine can reach address.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// bindTo listens on address. If address is a socket file without a listening process, bindTo
// replaces the file.
func bindTo(network, address string) (net.Listener, error) {
	nl, err := net.Listen(network, address)
	if err == nil || network != "unix" || !isStale(network, address) {
		return nl, err
	}
	os.Remove(address)
	return net.Listen(network, address)
}

// isStale reports whether path is a socket file without a listening process, which a killed process
// has left.
func isStale(network, path string) bool {
	if st, err := os.Lstat(path); err != nil || st.Mode()&os.ModeSocket == 0 {
		return false
	}
	c, err := net.Dial(network, path)
	if err == nil {
		c.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// listenError returns the error for an address on which l cannot listen because of err.
func (l *Listener) listenError(network, address string, err error) error {
	text := fmt.Sprintf("cannot listen on %s, for %s: %s", address, l.displayName(), neterr.Cause(err))
	isPath := strings.HasPrefix(network, "unix")
	switch {
	case isPath && !errors.Is(err, syscall.EADDRINUSE):
		text = console.WriteRemedy(text)
	case isPath:
		text += "; another program listens there: end it, or use another path"
	default:
		text = console.ListenRemedy(text)
	}
	return errors.New(text)
}

// config returns the configuration that all servers have in common.
func (r *Receiver) config() listen.Config {
	return listen.Config{Sink: r.Sink, Limits: r.C.limits(), Action: r.Action, Refused: r.Reporter.refused}
}

// ForwardListener returns the listener of the Forward protocol.
func ForwardListener() *Listener {
	return &Listener{
		Flag: "forward", what: "Forward", Address: "127.0.0.1:24224", ByDefault: true,
		Usage: "listen for the Forward protocol of Fluentd, Fluent Bit and many loggers (default: on if no listener is named)",
		open: func(r *Receiver, l *Listener) (server, error) {
			c := forward.Config{Config: r.config(), Secured: r.C.KeyFile != "", User: r.C.User}
			var err error
			if c.Key, err = secretFile("--shared-key-file", r.C.KeyFile); err != nil {
				return nil, err
			}
			if c.Password, err = secretFile("--password-file", r.C.PasswordFile); err != nil {
				return nil, err
			}
			nl, err := r.bind(l)
			if err != nil {
				return nil, err
			}
			s := forward.New(c)
			s.Serve(nl)
			return s, nil
		},
	}
}

// LokiListener returns the listener of Loki's push API.
func LokiListener() *Listener {
	return &Listener{
		Flag: "loki", what: "Loki's push API", protocol: "http", Address: "127.0.0.1:3100", ByDefault: true,
		Usage: "listen for the push API of Grafana Loki (default: on if no listener is named)",
		open: func(r *Receiver, l *Listener) (server, error) {
			nl, err := r.bind(l)
			if err != nil {
				return nil, err
			}
			s := lokipush.New(r.config())
			s.Serve(nl)
			return s, nil
		},
	}
}

// SyslogListener returns the listener of syslog over streams and datagrams.
func SyslogListener() *Listener {
	return &Listener{
		Flag: "syslog", what: "syslog", Address: "127.0.0.1:5514",
		Usage: "listen for syslog, RFC 5424 and 3164, over TCP and UDP; also tcp://HOST:PORT, udp://HOST:PORT, unixgram:PATH (default: off)",
		open: func(r *Receiver, l *Listener) (server, error) {
			at, network := l.split()
			stream, packets := network == "" || network == "tcp", network == "udp" || network == "unixgram"
			if network == "" && r.Tls == nil && !strings.HasPrefix(at.Value, "unix:") {
				network, packets = "udp", true
			}
			s := syslog.New(r.config())
			if stream {
				nl, err := r.bind(at)
				if err != nil {
					return nil, err
				}
				if s.Serve(nl); packets { // use the same port for UDP, because the system may have chosen the port
					at.Value = nl.Addr().String()
				}
			}
			if packets {
				c, err := r.bindPackets(at, network)
				if err != nil {
					s.Close(context.Background())
					return nil, err
				}
				s.ServePackets(c)
			}
			return s, nil
		},
	}
}

// bindPackets opens the datagram socket of l and prints its address.
func (r *Receiver) bindPackets(l *Listener, network string) (net.PacketConn, error) {
	_, address, err := l.Resolve()
	if err != nil {
		return nil, err
	}
	c, err := net.ListenPacket(network, address)
	if err != nil && network == "unixgram" && isStale(network, address) {
		os.Remove(address)
		c, err = net.ListenPacket(network, address)
	}
	if err != nil {
		return nil, l.listenError(network, address, err)
	}
	r.Listening(l, network, c.LocalAddr().String())
	if network == "unixgram" {
		return socketFile{c, address}, nil
	}
	return c, nil
}

// A socketFile is a Unix datagram socket whose Close removes the socket file. Package net does this
// only for stream sockets.
type socketFile struct {
	net.PacketConn
	path string
}

func (s socketFile) Close() error {
	os.Remove(s.path)
	return s.PacketConn.Close()
}

// secretFile reads a secret from the file at path and removes the newline at its end. flag names
// the file in errors.
func secretFile(flag, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	secret, err := secrets.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("cannot read %s %s: %w", flag, path, vfs.Cause(err))
	}
	if secret == "" {
		return "", fmt.Errorf("%s %s is empty", flag, path)
	}
	return secret, nil
}

// Close closes all listeners concurrently. It waits until the received messages are answered, or
// until ctx is done.
func (r *Receiver) Close(ctx context.Context) {
	var wg sync.WaitGroup
	for _, s := range r.Servers {
		wg.Go(func() { s.Close(ctx) })
	}
	wg.Wait()
}

// CheckPairs returns an error if an option for TLS or authentication is set but another required
// option is not.
func (c *ListenConfig) CheckPairs() error {
	switch {
	case (c.TlsCert == "") != (c.TlsKey == ""):
		return errors.New("--tls-cert and --tls-key belong together: one is missing")
	case c.TlsClientCA != "" && c.TlsCert == "":
		return errors.New("--tls-client-ca needs --tls-cert and --tls-key: client certificates require TLS")
	case (c.User == "") != (c.PasswordFile == ""):
		return errors.New("--user and --password-file belong together: one is missing")
	case c.User != "" && c.KeyFile == "":
		return errors.New("--user needs --shared-key-file: clients log in with both")
	}
	return nil
}

// check returns an error if the options of l are invalid.
func (c *ListenConfig) check(l *Listener) error {
	if err := c.CheckPairs(); err != nil {
		return err
	}
	for _, f := range []struct{ name, path string }{{"--shared-key-file", c.KeyFile}, {"--password-file", c.PasswordFile}} {
		if _, err := secretFile(f.name, f.path); err != nil {
			return err
		}
	}
	if _, err := c.serverTLS(); err != nil {
		return err
	}
	_, err := l.Endpoints()
	return err
}

// OpenFiles returns a warning for each file with a secret that every user of the machine can read or
// change. prefix precedes the name of the option.
func (c *ListenConfig) OpenFiles(prefix string) (warnings []string) {
	return setting.OpenFiles(prefix, setting.SecretFile{Name: "shared-key-file", Path: c.KeyFile},
		setting.SecretFile{Name: "password-file", Path: c.PasswordFile}, setting.SecretFile{Name: "tls-key", Path: c.TlsKey})
}

// A Reporter writes messages about listeners and clients. It limits the number of messages about
// refusals, because clients can cause any number of them.
type Reporter struct {
	say func(text string)

	mu         sync.Mutex
	budget     float64 // number of messages about refusals that may be written at present
	last       time.Time
	suppressed uint64 // number of refusals after the last message that were not reported
}

// NewReporter returns a Reporter that writes to w.
func NewReporter(w io.Writer) *Reporter {
	return &Reporter{say: func(text string) { fmt.Fprintf(w, "forebay: %s\n", text) }}
}

// Line writes a message that is not about a refusal. The number of such messages is not limited.
func (s *Reporter) Line(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.say(text)
}

// Refusals is the number of messages about refusals that may be written at once. After that, one
// message per second may be written.
const Refusals = 10

func (s *Reporter) refused(r listen.Refusal) { s.RefusedAt(r, time.Now()) }

// RefusedAt writes a message about r, unless too many messages were written. now is the time of the
// refusal.
func (s *Reporter) RefusedAt(r listen.Refusal, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last.IsZero() {
		s.budget = Refusals
	} else {
		s.budget = min(s.budget+now.Sub(s.last).Seconds(), Refusals)
	}
	s.last = now
	if s.budget < 1 {
		s.suppressed++
		return
	}
	s.budget--
	more := ""
	if s.suppressed > 0 {
		more = fmt.Sprintf(" (and %s before, not shown)", console.Amount(s.suppressed, "refusal"))
		s.suppressed = 0
	}
	s.say(r.String() + more)
}

// A slowListener is a listener that limits the read speed of its connections.
type slowListener struct {
	net.Listener
	perSecond int64
}

func (l slowListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if t, ok := c.(*net.TCPConn); ok {
		// The default buffer would let the kernel receive megabytes in advance. A buffer smaller
		// than the window of the handshake (about 64 KiB) would reduce the speed to some 30 KiB/s:
		// Linux sends segments of up to half the largest window that it has seen, and waits 200 ms
		// if the present window has no room.
		t.SetReadBuffer(int(min(max(64<<10, l.perSecond/4), 16<<20)))
	}
	return &SlowConn{Conn: c, PerSecond: l.perSecond, Closed: make(chan struct{})}, nil
}

// A SlowConn reads at most PerSecond bytes per second on average. Read pauses after each part.
type SlowConn struct {
	net.Conn
	PerSecond int64
	Closed    chan struct{}
	once      sync.Once
}

// NetConn returns the connection without the limit.
func (c *SlowConn) NetConn() net.Conn { return c.Conn }

// Close closes the connection. It ends a pause of Read.
func (c *SlowConn) Close() error {
	c.once.Do(func() { close(c.Closed) })
	return c.Conn.Close()
}

func (c *SlowConn) Read(p []byte) (int, error) {
	most := max(c.PerSecond/10, 1) // read ten parts per second, so that pauses are short
	n, err := c.Conn.Read(p[:min(int64(len(p)), most)])
	if n > 0 {
		t := time.NewTimer(time.Duration(float64(n) / float64(c.PerSecond) * float64(time.Second)))
		defer t.Stop()
		select {
		case <-t.C:
		case <-c.Closed:
		}
	}
	return n, err
}
