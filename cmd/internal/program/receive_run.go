package program

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
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/listen"
	"github.com/forebay-log/forebay/cmd/internal/listen/forward"
	"github.com/forebay-log/forebay/cmd/internal/listen/lokipush"
	"github.com/forebay-log/forebay/cmd/internal/listen/ndjson"
	"github.com/forebay-log/forebay/cmd/internal/listen/syslog"
	"github.com/forebay-log/forebay/file"
	"github.com/forebay-log/forebay/internal/secrets"
	"github.com/forebay-log/forebay/internal/tlsfiles"
	"github.com/forebay-log/forebay/internal/units"
	"github.com/forebay-log/forebay/internal/vfs"
)

// opened is a listener at work.
type opened interface {
	Stats() listen.Stats
	Close(context.Context) error
}

// A receiver is forebay receive at work.
type receiver struct {
	c       *receiveConfig
	sink    listen.Sink
	tls     *tls.Config // nil: without
	action  func(context.Context) listen.Action
	said    *sayer
	servers []opened
	names   []string
	signals signals
}

// closeTime is how long chunks that have come may take to be written and acknowledged.
const closeTime = 10 * time.Second

func runReceive(c *receiveConfig, stdout, stderr *os.File) error {
	var out io.Writer = stdout
	switch {
	case c.fsync:
		f, err := file.Open(c.out, &file.Options{Mode: 0o644, Sync: "always"})
		if err != nil {
			return exit.Config(fmt.Errorf("--out: %s", strings.TrimPrefix(err.Error(), "file: ")))
		}
		defer f.Close()
		out = f
	case c.out != "":
		f, err := vfs.OpenAppend(c.out, os.O_WRONLY|os.O_CREATE, 0o644)
		if err != nil {
			return exit.Config(fmt.Errorf("cannot open --out %s: %w", c.out, console.Unpathed(err)))
		}
		defer f.Close()
		out = f
	}
	arrived := make(chan os.Signal, 4)
	notify(arrived)
	r := &receiver{c: c, action: c.faultInjection.action(), said: newSayer(stderr)}
	full, failed := make(chan struct{}, 1), make(chan error, 1)
	r.sink = ndjson.New(out, func(records uint64, err error) {
		switch {
		case err != nil:
			select {
			case failed <- err:
			default:
			}
		case c.count > 0 && records >= c.count:
			select {
			case full <- struct{}{}:
			default:
			}
		}
	})
	start := time.Now()
	if err := r.listen(); err != nil {
		r.close(context.Background())
		return exit.Config(err)
	}
	var failure error
	select {
	case <-full:
	case failure = <-failed:
	case sig := <-arrived:
		r.signals.second(sig)
	}
	if err := r.end(arrived); err != nil && failure == nil {
		failure = err
	}
	select {
	case failure = <-failed:
	default:
	}
	if !c.quiet {
		r.said.line(r.summary(time.Since(start)))
	}
	switch {
	case errors.Is(failure, syscall.EPIPE):
		return exit.Runtime(nil) // who reads has seen enough
	case failure == errForced, failure == errNoTaker:
		return exit.Runtime(failure)
	case failure != nil && c.fsync: // it names the file
		return exit.Runtime(fmt.Errorf("--out: %s", strings.TrimPrefix(failure.Error(), "file: ")))
	case failure != nil:
		return exit.Runtime(fmt.Errorf("cannot write %s: %w", c.outName(), console.Unpathed(failure)))
	}
	if got := r.records(); got < c.count {
		return exit.Runtime(fmt.Errorf("%s of the %s of --count have come", units.Count(got), units.Count(c.count)))
	}
	return nil
}

func (c *receiveConfig) outName() string {
	if c.out == "" {
		return "standard output"
	}
	return "--out " + c.out
}

// serverTLS returns the TLS of the listeners, nil for none.
func (c *receiveConfig) serverTLS() (*tls.Config, error) {
	if c.tlsCert == "" {
		return nil, nil
	}
	pair, err := tlsfiles.NewPair(c.tlsCert, c.tlsKey)
	if err != nil {
		return nil, fmt.Errorf("cannot load --tls-cert and --tls-key: %w", err)
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	pair.Server(t)
	return t, c.askClients(t)
}

// listen opens all listeners.
func (r *receiver) listen() error {
	var err error
	if r.tls, err = r.c.serverTLS(); err != nil {
		return err
	}
	for _, l := range r.c.listeners {
		if !l.on {
			continue
		}
		s, err := l.open(r, l)
		if err != nil {
			return err
		}
		r.servers = append(r.servers, s)
		r.names = append(r.names, l.flag)
	}
	return nil
}

// askClients has clients show a certificate, if --tls-client-ca says whose.
func (c *receiveConfig) askClients(t *tls.Config) error {
	if c.tlsClientCA == "" {
		return nil
	}
	text, err := os.ReadFile(c.tlsClientCA)
	if err != nil {
		return fmt.Errorf("cannot read --tls-client-ca %s: %w", c.tlsClientCA, console.Unpathed(err))
	}
	t.ClientAuth, t.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	if !t.ClientCAs.AppendCertsFromPEM(text) {
		return fmt.Errorf("--tls-client-ca %s has no certificate in PEM form", c.tlsClientCA)
	}
	return nil
}

// bind listens on the address of l, and says so.
func (r *receiver) bind(l *listener) (net.Listener, error) {
	network, address, err := l.resolve()
	if err != nil {
		return nil, err
	}
	nl, err := bindTo(network, address)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s, for %s: %w%s", address, l.named(), console.BareNet(err), portHint(err, l))
	}
	if r.c.faultInjection.slow > 0 {
		nl = slowListener{nl, int64(r.c.faultInjection.slow)}
	}
	r.listening(l, network, nl.Addr().String())
	if network != "unix" && r.tls != nil {
		nl = tls.NewListener(nl, r.tls)
	}
	return nl, nil
}

// listening says where l listens.
func (r *receiver) listening(l *listener, network, at string) {
	if r.c.quiet {
		return
	}
	here := network == "unix" || network == "unixgram" || loopback(at)
	switch {
	case network == "unix" || network == "unixgram":
		at = network + ":" + at
	case network == "udp":
		at = "udp://" + at
	case l.protocol == "http" && r.tls != nil:
		at = "https://" + at
	case l.protocol == "http":
		at = "http://" + at
	case r.tls != nil:
		at += " with TLS"
	}
	text := "listening for " + l.what + " on " + at
	if !here {
		text += ", reachable from other machines"
		if asked := l.flag == "forward" && r.c.keyFile != "" || r.c.tlsClientCA != ""; !asked {
			text += " without a key"
		}
	}
	r.said.line(text)
}

func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

func bindTo(network, address string) (net.Listener, error) {
	nl, err := net.Listen(network, address)
	if err == nil || network != "unix" || !abandoned(network, address) {
		return nl, err
	}
	os.Remove(address)
	return net.Listen(network, address)
}

// abandoned reports whether a process that was killed has left the socket.
func abandoned(network, path string) bool {
	if st, err := os.Lstat(path); err != nil || st.Mode()&os.ModeSocket == 0 {
		return false
	}
	c, err := net.Dial(network, path)
	if err == nil {
		c.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// portHint says what to do when a port is taken.
func portHint(err error, l *listener) string {
	if errors.Is(err, syscall.EADDRINUSE) {
		if l.input != "" {
			return ": another program listens there; end it, or use another port"
		}
		return ": another program listens there; end it, or write --" + l.flag + "=ADDR with another port"
	}
	return ""
}

// config is what listeners have in common.
func (r *receiver) config() listen.Config {
	return listen.Config{Sink: r.sink, Limits: r.c.limits(), Action: r.action, Refused: r.said.refused}
}

func forwardListener() *listener {
	return &listener{
		flag: "forward", what: "Forward", address: "127.0.0.1:24224", byDefault: true,
		usage: "listen for the Forward protocol of Fluentd, Fluent Bit and many loggers (default: on if no listener is named)",
		open: func(r *receiver, l *listener) (opened, error) {
			c := forward.Config{Config: r.config(), Secured: r.c.keyFile != "", User: r.c.user}
			var err error
			if c.Key, err = secretFile("--shared-key-file", r.c.keyFile); err != nil {
				return nil, err
			}
			if c.Password, err = secretFile("--password-file", r.c.passwordFile); err != nil {
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

func lokiListener() *listener {
	return &listener{
		flag: "loki", what: "Loki's push API", protocol: "http", address: "127.0.0.1:3100", byDefault: true,
		usage: "listen for the push API of Grafana Loki (default: on if no listener is named)",
		open: func(r *receiver, l *listener) (opened, error) {
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

func syslogListener() *listener {
	return &listener{
		flag: "syslog", what: "syslog", address: "127.0.0.1:5514",
		usage: "listen for syslog, RFC 5424 and 3164, over TCP and UDP; also tcp://HOST:PORT, udp://HOST:PORT, unixgram:PATH (default: off)",
		open: func(r *receiver, l *listener) (opened, error) {
			at, network := l.split()
			stream, packets := network == "" || network == "tcp", network == "udp" || network == "unixgram"
			if network == "" && r.tls == nil && !strings.HasPrefix(at.value, "unix:") {
				network, packets = "udp", true
			}
			s := syslog.New(r.config())
			if stream {
				nl, err := r.bind(at)
				if err != nil {
					return nil, err
				}
				if s.Serve(nl); packets { // the same port, also where the system chose it
					at.value = nl.Addr().String()
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

// bindPackets listens for datagrams on the address of l, and says so.
func (r *receiver) bindPackets(l *listener, network string) (net.PacketConn, error) {
	_, address, err := l.resolve()
	if err != nil {
		return nil, err
	}
	c, err := net.ListenPacket(network, address)
	if err != nil && network == "unixgram" && abandoned(network, address) {
		os.Remove(address)
		c, err = net.ListenPacket(network, address)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s, for %s: %w%s", address, l.named(), console.BareNet(err), portHint(err, l))
	}
	r.listening(l, network, c.LocalAddr().String())
	if network == "unixgram" {
		return socketFile{c, address}, nil
	}
	return c, nil
}

// A socketFile removes its file when it is closed, which net does for streams only.
type socketFile struct {
	net.PacketConn
	path string
}

func (s socketFile) Close() error {
	os.Remove(s.path)
	return s.PacketConn.Close()
}

// secretFile reads a secret without the newline behind it.
func secretFile(flag, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	secret, err := secrets.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("cannot read %s %s: %w", flag, path, console.Unpathed(err))
	}
	if secret == "" {
		return "", fmt.Errorf("%s %s is empty", flag, path)
	}
	return secret, nil
}

// errNoTaker ends receive when it waited for its output for long enough.
var errNoTaker = errors.New("standard output is not being read: the last messages were not acknowledged")

// end closes the listeners. The error says why not all that was at hand was answered.
func (r *receiver) end(arrived <-chan os.Signal) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		r.close(ctx)
	}()
	for {
		select {
		case <-closed:
			return nil
		case sig := <-arrived:
			if r.signals.second(sig) {
				return errForced
			}
		case <-ctx.Done(): // the output hangs, or else they would be closed by now
			select {
			case <-closed:
				return nil
			case <-time.After(time.Second):
				return errNoTaker
			}
		}
	}
}

func (r *receiver) close(ctx context.Context) {
	var wg sync.WaitGroup
	for _, s := range r.servers {
		wg.Go(func() { s.Close(ctx) })
	}
	wg.Wait()
}

func (r *receiver) records() (n uint64) {
	for _, s := range r.servers {
		n += s.Stats().Records
	}
	return n
}

// summary is one line: what each listener has taken.
func (r *receiver) summary(took time.Duration) string {
	var sb strings.Builder
	fmt.Fprintf(&sb, "received %s in %s", console.Amount(r.records(), "record"), units.Duration(took.Round(time.Millisecond)))
	for i, s := range r.servers {
		st := s.Stats()
		fmt.Fprintf(&sb, "; %s records=%d messages=%d connections=%d", r.names[i], st.Records, st.Messages, st.Conns)
		if st.Refused > 0 {
			fmt.Fprintf(&sb, " refused=%d", st.Refused)
		}
	}
	return sb.String()
}

// A sayer writes lines on standard error. Of refusals it writes some: peers make them.
type sayer struct {
	say func(text string)

	mu     sync.Mutex
	budget float64 // refusals that may be written now
	last   time.Time
	silent uint64 // refusals since the last one that was written
}

func newSayer(w io.Writer) *sayer {
	return &sayer{say: func(text string) { fmt.Fprintf(w, "forebay: %s\n", text) }}
}

func (s *sayer) line(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.say(text)
}

// refusals at once, then one a second.
const refusals = 10

func (s *sayer) refused(r listen.Refusal) { s.refusedAt(r, time.Now()) }

func (s *sayer) refusedAt(r listen.Refusal, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last.IsZero() {
		s.budget = refusals
	} else {
		s.budget = min(s.budget+now.Sub(s.last).Seconds(), refusals)
	}
	s.last = now
	if s.budget < 1 {
		s.silent++
		return
	}
	s.budget--
	more := ""
	if s.silent > 0 {
		more = fmt.Sprintf(" (and %s before, not shown)", console.Amount(s.silent, "refusal"))
		s.silent = 0
	}
	s.say(r.String() + more)
}
