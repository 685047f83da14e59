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

	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/listen"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/internal/units"
)

// receiveConfig is what the flags of receive say.
type receiveConfig struct {
	listeners      []*listener
	out            string
	fsync          bool
	count          uint64
	maxMessage     setting.Size
	maxConns       int
	keyFile        string
	user           string
	passwordFile   string
	tlsCert        string
	tlsKey         string
	tlsClientCA    string
	faultInjection faultInjection
	quiet          bool
}

// newMaxMessage returns the default of --max-message.
func newMaxMessage() *setting.Size { return setting.SizeBetween(32<<20, 64<<10, 256<<20) }

func newReceive(stdout, stderr *os.File) *cobra.Command {
	c := &receiveConfig{maxMessage: *newMaxMessage(), maxConns: 256}
	c.listeners = []*listener{forwardListener(), lokiListener(), syslogListener()}
	cmd := &cobra.Command{
		Use:   "receive",
		Short: "Receive records from clients and print them, for tests",
		Long: `Receive records from clients and print them as JSON lines, for development and tests of
clients without an installed log server.

If no listener flag is given, these listeners are started:
` + listenersHelp(c.listeners) + `
They accept connections from this machine only. --forward=:24224 accepts connections from all
machines; the value must follow a =. --forward=unix:PATH listens on a unix socket, and with
port 0 the system chooses a port. --syslog listens on 127.0.0.1:5514, over TCP and, without
--tls-cert, over UDP.

Each output line is an object with the available fields of a record: source (the listener),
tenant, tag, labels, metadata, level, time (UTC) and body, an object or a string. A Forward
chunk is acknowledged, and a push to Loki is answered with 204, after all its records are
written to --out, and with --fsync after they are on stable storage.

The command ends on Ctrl-C, on SIGTERM, or after --count records. Chunks already received are
written and answered first. A second signal ends it at once; the same signal again within
0.25 s counts once.

The following flags inject faults, to test the behavior of clients. Here a chunk is a Forward
chunk, a push to Loki or a syslog message:
  --stall waits before it accepts each chunk. --slow limits the bytes per second that are
  read from each connection. --reset and --reject refuse P percent of the chunks. --reset
  resets the connection. --reject answers Loki clients with 429 and 500 in turn, and does not
  answer Forward clients. P is exact and evenly spread: 25 refuses every fourth chunk. syslog
  has no answers, so refused messages are lost.

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
				return exit.Usage(err)
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
	fs.StringVarP(&c.out, "out", "o", "", "append the records to `FILE` (default: standard output)")
	fs.BoolVar(&c.fsync, "fsync", false, "sync --out to stable storage before records are acknowledged, so that they survive a power loss")
	fs.Uint64VarP(&c.count, "count", "n", 0, "exit with code 0 after `N` records or more, because chunks are accepted whole (default 0: no limit)")
	fs.StringVar(&c.keyFile, "shared-key-file", "", "forward: `FILE` with the shared key for clients (default: none)")
	fs.StringVar(&c.user, "user", "", "forward: user `NAME` required in addition to the shared key (default: none)")
	fs.StringVar(&c.passwordFile, "password-file", "", "forward: `FILE` with the password of --user (default: none)")
	fs.StringVar(&c.tlsCert, "tls-cert", "", "TLS: `FILE` with the certificate for all TCP listeners (default: none)")
	fs.StringVar(&c.tlsKey, "tls-key", "", "TLS: `FILE` with the key of --tls-cert (default: none)")
	fs.StringVar(&c.tlsClientCA, "tls-client-ca", "", "TLS: `FILE` with the CA certificates for clients; other clients are refused (default: none)")
	fs.Var(&c.maxMessage, "max-message", "maximum size of a message, compressed and decompressed; a longer message ends its connection")
	fs.IntVar(&c.maxConns, "max-conns", c.maxConns, "number `N` of simultaneous connections to each listener")
	fs.Var(&c.faultInjection.stall, "stall", "time to wait before each chunk is accepted, or forever (default 0)")
	fs.Var(&c.faultInjection.reset, "reset", "percentage of chunks to refuse by resetting their connections (default 0)")
	fs.Var(&c.faultInjection.reject, "reject", "percentage of chunks to refuse without acknowledgement; Loki: answer 429 and 500 (default 0)")
	fs.Var(&c.faultInjection.slow, "slow", "bytes per second to read from each connection, such as 64KiB (default: no limit)")
	fs.BoolVarP(&c.quiet, "quiet", "q", false, "print only errors on standard error")
	setting.Complete(cmd, "stall", "forever", "2s")
	return cmd
}

const receiveExitHelp = `Exit codes:
  0   a signal ended it, or --count records were received
  1   the output could not be written, or a signal ended it before --count
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
	case c.faultInjection.reset+c.faultInjection.reject > 100:
		return fmt.Errorf("--reset %s and --reject %s: these shares of the chunks add up to more than 100 %%", &c.faultInjection.reset, &c.faultInjection.reject)
	case (c.tlsCert == "") != (c.tlsKey == ""):
		return errors.New("--tls-cert and --tls-key belong together: one is missing")
	case c.tlsClientCA != "" && c.tlsCert == "":
		return errors.New("--tls-client-ca needs --tls-cert and --tls-key: client certificates require TLS")
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
	return exit.Usage(fmt.Errorf("%s has no arguments, but %q is given; write an address after =, such as --forward=%s",
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
			return "", "", fmt.Errorf("%s %s has no socket: write unix:PATH", l.named(), v)
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
		return "", "", fmt.Errorf("%s %s is not an address: use HOST:PORT or unix:PATH", l.named(), v)
	}
	if _, err := strconv.ParseUint(p, 10, 16); err != nil {
		return "", "", fmt.Errorf("%s %s: the port must be 0 to 65535", l.named(), v)
	}
	return "tcp", net.JoinHostPort(h, p), nil
}

// A mischief is how receive misbehaves.
type faultInjection struct {
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
	return (*setting.Duration)(&s.d).String()
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
		return fmt.Errorf("%q is not a percentage: use 0 to 100", text)
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
		err = fmt.Errorf("%s is out of range: use 1 byte to 1TiB per second", text)
	}
	*b = bytesPerSecond(n)
	return err
}

// limits are the bounds of each listener.
func (c *receiveConfig) limits() listen.Limits {
	l := listen.Limits{MessageBytes: int(c.maxMessage.Value), Conns: c.maxConns}
	if c.faultInjection.slow > 0 { // who reads slowly gives the others the time
		l.MessageTime, l.HelloTime = 1000*time.Hour, 100*time.Hour
	}
	return l
}
