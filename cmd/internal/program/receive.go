package program

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/cmd/internal/listen"
	"github.com/forebay-log/forebay/cmd/internal/units"
)

// receiveConfig is what the flags of receive say.
type receiveConfig struct {
	listeners    []*listener
	out          string
	fsync        bool
	count        uint64
	maxMessage   size
	maxConns     int
	keyFile      string
	user         string
	passwordFile string
	tlsCert      string
	tlsKey       string
	tlsClientCA  string
	mischief     mischief
	quiet        bool
}

func newReceive(stdout, stderr *os.File) *cobra.Command {
	c := &receiveConfig{maxMessage: size{32 << 20, 64 << 10, 256 << 20}, maxConns: 256}
	c.listeners = []*listener{forwardListener(), lokiListener(), syslogListener()}
	cmd := &cobra.Command{
		Use:   "receive",
		Short: "Be the other side: take what clients send, and print it",
		Long: `Be the other side, for development and tests: listen as a log server does, and
write what comes as lines of JSON. No server has to be installed to try a client.

Without a flag that names a listener, these listen:
` + listenersHelp(c.listeners) + `
Only this machine reaches them. For all machines write --forward=:24224; a value
stands behind a =. Also --forward=unix:PATH, and port 0, which the system chooses.
--syslog listens on 127.0.0.1:5514, TCP and, without --tls-cert, UDP.

A line of the output is an object with what the record has of these: source (the
listener), tenant, tag, labels, metadata, level, time (UTC) and body, which is an
object or a string. A chunk of Forward is acknowledged, and a push to Loki answered
with 204, once all of it is written to --out; with --fsync, once it is on the disk there.

It ends at Ctrl-C, SIGTERM, or --count. Chunks that have come are written and
answered first; a second signal ends it at once (the same one again within 0.25 s
counts once).

It misbehaves on request, to show what a client does then. A chunk is also a push, and
a message of syslog:
  --stall waits before each chunk is taken, --slow reads that many bytes per second
  from each connection. --reset and --reject take P percent of the chunks not: they
  reset the connection, or give Loki's clients 429 and 500 in turns, and those of
  Forward no answer. P is exact and evenly spread: with 25 it is every fourth chunk.
  Clients of syslog cannot know, and so what is not taken from them is lost.

` + receiveExitHelp,
		Example: `  forebay receive
  myapp | forebay pipe --to loki://127.0.0.1:3100 --to forward://127.0.0.1:24224
  forebay receive --forward --count 1000 --out got.jsonl
  forebay receive --forward=:24224 --shared-key-file key --tls-cert cert.pem --tls-key key.pem
  forebay receive --forward --stall 2s --reset 10
  forebay receive --syslog=unixgram:dev-log`,
		Args: noListenerArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.settle(cmd); err != nil {
				return usageError(err)
			}
			return runReceive(c, stdout, stderr)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	for _, l := range c.listeners {
		fs.Var(l, l.flag, l.usage)
		fs.Lookup(l.flag).NoOptDefVal = l.address
	}
	fs.StringVarP(&c.out, "out", "o", "", "append the records to this `FILE` (default: standard output)")
	fs.BoolVar(&c.fsync, "fsync", false, "put records on the disk, in --out, before they are acknowledged: a loss of power takes none of those")
	fs.Uint64VarP(&c.count, "count", "n", 0, "exit with 0 after `N` records, or some more: a chunk is taken whole (0: no end)")
	fs.StringVar(&c.keyFile, "shared-key-file", "", "forward: `FILE` with the key that clients must know")
	fs.StringVar(&c.user, "user", "", "forward: the `NAME` with which clients must log in, beside the shared key")
	fs.StringVar(&c.passwordFile, "password-file", "", "forward: `FILE` with the password of --user")
	fs.StringVar(&c.tlsCert, "tls-cert", "", "TLS: `FILE` with the certificate of this server; all TCP listeners use it")
	fs.StringVar(&c.tlsKey, "tls-key", "", "TLS: `FILE` with its key")
	fs.StringVar(&c.tlsClientCA, "tls-client-ca", "", "TLS: `FILE` with the authorities that sign the certificates of clients; nobody else is let in")
	fs.Var(&c.maxMessage, "max-message", "the longest message, as it comes and decompressed; longer ones end their connection")
	fs.IntVar(&c.maxConns, "max-conns", c.maxConns, "`N` connections at a time to each listener")
	fs.Var(&c.mischief.stall, "stall", "wait so long before each chunk is taken, or forever")
	fs.Var(&c.mischief.reset, "reset", "take so many percent of the chunks not, and reset their connections")
	fs.Var(&c.mischief.reject, "reject", "take so many percent of the chunks not, and do not acknowledge them; Loki: answer 429 and 500")
	fs.Var(&c.mischief.slow, "slow", "read so many bytes per second from each connection, such as 64KiB")
	fs.BoolVarP(&c.quiet, "quiet", "q", false, "say nothing but errors on standard error")
	complete(cmd, "stall", "forever", "2s")
	return cmd
}

const receiveExitHelp = `Exit codes:
  0   it was told to end, or --count records have come
  1   the output could not be written, or it was told to end before --count
  2   the command line is wrong
  78  an address, a key or --out cannot be used`

// settle checks the flags against each other.
func (c *receiveConfig) settle(cmd *cobra.Command) error {
	any := false
	for _, l := range c.listeners {
		any = any || l.on
	}
	for _, l := range c.listeners {
		l.on = l.on || !any && l.byDefault
	}
	switch {
	case c.fsync && c.out == "":
		return errors.New("--fsync needs --out FILE: standard output is not synced")
	case c.maxConns < 1:
		return fmt.Errorf("--max-conns %d: use 1 or more", c.maxConns)
	case c.mischief.reset+c.mischief.reject > 100:
		return fmt.Errorf("--reset %s and --reject %s: these shares of the chunks add up to more than 100 %%", &c.mischief.reset, &c.mischief.reject)
	case (c.tlsCert == "") != (c.tlsKey == ""):
		return errors.New("--tls-cert and --tls-key belong together: one is missing")
	case c.tlsClientCA != "" && c.tlsCert == "":
		return errors.New("--tls-client-ca needs --tls-cert and --tls-key: clients show certificates to a server that has one")
	case (c.user == "") != (c.passwordFile == ""):
		return errors.New("--user and --password-file belong together: one is missing")
	case c.user != "" && c.keyFile == "":
		return errors.New("--user needs --shared-key-file: clients log in with both")
	}
	for _, name := range []string{"shared-key-file", "user", "password-file"} {
		if cmd.Flags().Changed(name) && !c.listener("forward").on {
			return fmt.Errorf("--%s is given, but nothing listens for Forward: add --forward", name)
		}
	}
	return nil
}

func (c *receiveConfig) listener(flag string) *listener {
	for _, l := range c.listeners {
		if l.flag == flag {
			return l
		}
	}
	panic("no listener --" + flag)
}

// noListenerArgs refuses arguments; one may be meant as the address of a listener.
func noListenerArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usageError(fmt.Errorf("%s takes no argument, and %q is one; an address stands behind a =, such as --forward=%s",
		cmd.CommandPath(), args[0], args[0]))
}

// A listener is one of the flags that name listeners. It is a pflag.Value.
type listener struct {
	flag, usage string
	what        string // for people
	protocol    string // in front of the address, for people
	address     string // the default
	byDefault   bool   // it listens if no flag says which do
	open        func(*receiver, *listener) (opened, error)

	on    bool
	value string
	input string // of forebay run; "": a flag names it
}

// named names the listener where the user has.
func (l *listener) named() string {
	if l.input != "" {
		return l.input
	}
	return "--" + l.flag
}

func (l *listener) String() string { return l.value }
func (*listener) Type() string     { return "ADDR" }
func (l *listener) Set(text string) error {
	if text == "" {
		return errors.New("the address is empty: use HOST:PORT or unix:PATH")
	}
	l.on, l.value = true, text
	return nil
}

func listenersHelp(all []*listener) string {
	var sb strings.Builder
	for _, l := range all {
		if l.byDefault {
			fmt.Fprintf(&sb, "  --%-8s %s, %s\n", l.flag, l.address, l.what)
		}
	}
	return sb.String()
}

// split returns l with an address without the network that is named before it, and that
// network: tcp, udp, unixgram or, if there is none, "".
func (l *listener) split() (at *listener, network string) {
	own := *l
	at = &own
	if l.flag != "syslog" {
		return at, ""
	}
	for _, network := range []string{"tcp", "udp"} {
		if rest, ok := strings.CutPrefix(l.value, network+"://"); ok {
			at.value = rest
			return at, network
		}
	}
	if path, ok := strings.CutPrefix(l.value, "unixgram:"); ok {
		at.value = "unix:" + path
		return at, "unixgram"
	}
	return at, ""
}

// endpoints returns where the listener listens. A HOST:PORT of syslog is both TCP and UDP.
func (l *listener) endpoints() ([]endpoint, error) {
	at, named := l.split()
	network, address, err := at.resolve()
	switch {
	case err != nil:
		return nil, err
	case named != "":
		return []endpoint{{named, address}}, nil
	case l.flag == "syslog" && network == "tcp":
		return []endpoint{{"tcp", address}, {"udp", address}}, nil
	}
	return []endpoint{{network, address}}, nil
}

// resolve returns the network and the address to listen on.
func (l *listener) resolve() (network, address string, err error) {
	v := l.value
	if v == "" {
		v = l.address
	}
	if path, ok := strings.CutPrefix(v, "unix:"); ok {
		if path == "" {
			return "", "", fmt.Errorf("%s %s names no socket: write unix:PATH", l.named(), v)
		}
		return "unix", path, nil
	}
	host, port, _ := net.SplitHostPort(l.address)
	if _, err := strconv.ParseUint(v, 10, 16); err == nil { // a port alone: nobody else asked for
		return "tcp", net.JoinHostPort(host, v), nil
	}
	h, p, err := net.SplitHostPort(v)
	if bare := strings.Trim(v, "[]"); err != nil && (net.ParseIP(bare) != nil || !strings.ContainsAny(v, ":/")) {
		h, p, err = bare, port, nil
	}
	if err != nil || strings.Contains(h, "/") {
		return "", "", fmt.Errorf("%s %s is no address: use HOST:PORT or unix:PATH", l.named(), v)
	}
	if _, err := strconv.ParseUint(p, 10, 16); err != nil {
		return "", "", fmt.Errorf("%s %s: the port must be 0 to 65535", l.named(), v)
	}
	return "tcp", net.JoinHostPort(h, p), nil
}

// A mischief is how receive misbehaves.
type mischief struct {
	stall         stall
	reset, reject percent
	slow          bytesPerSecond
}

// stall is a flag: a duration, or forever.
type stall struct {
	d       time.Duration
	forever bool
}

func (s *stall) String() string {
	if s.forever {
		return "forever"
	}
	return (*duration)(&s.d).String()
}
func (*stall) Type() string { return "DURATION" }
func (s *stall) Set(text string) (err error) {
	if s.forever = text == "forever"; s.forever {
		return nil
	}
	if s.d, err = units.ParseDuration(text); err != nil {
		return fmt.Errorf("%w, or forever", err)
	}
	return nil
}

// percent is a flag from 0 to 100.
type percent float64

func (p *percent) String() string { return strconv.FormatFloat(float64(*p), 'f', -1, 64) }
func (*percent) Type() string     { return "P" }
func (p *percent) Set(text string) error {
	f, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil || !(f >= 0 && f <= 100) {
		return fmt.Errorf("%q is no percentage: use 0 to 100", text)
	}
	*p = percent(f)
	return nil
}

// bytesPerSecond is a flag.
type bytesPerSecond int64

func (b *bytesPerSecond) String() string { return units.FlagSize(int64(*b)) }
func (*bytesPerSecond) Type() string     { return "SIZE" }
func (b *bytesPerSecond) Set(text string) error {
	n, err := units.ParseSize(strings.TrimSuffix(text, "/s"))
	if err == nil && (n < 1 || n > 1<<40) {
		err = fmt.Errorf("%s is out of range, which is 1 byte to 1TiB per second", text)
	}
	*b = bytesPerSecond(n)
	return err
}

// limits are the bounds of each listener.
func (c *receiveConfig) limits() listen.Limits {
	l := listen.Limits{MessageBytes: int(c.maxMessage.value), Conns: c.maxConns}
	if c.mischief.slow > 0 { // who reads slowly gives the others the time
		l.MessageTime, l.HelloTime = 1000*time.Hour, 100*time.Hour
	}
	return l
}
