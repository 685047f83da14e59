package tool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/input"
	"github.com/forebay-log/forebay/cmd/internal/listen/ndjson"
	"github.com/forebay-log/forebay/cmd/internal/process"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/file"
	"github.com/forebay-log/forebay/internal/units"
	"github.com/forebay-log/forebay/internal/vfs"
)

// receiveConfig contains the values of the flags of forebay receive.
type receiveConfig struct {
	input.ListenConfig
	out            string
	fsync          bool
	count          setting.Count
	faultInjection FaultInjection
}

// NewReceive returns the command forebay receive.
func NewReceive(stdout, stderr *os.File) *cobra.Command {
	c := &receiveConfig{ListenConfig: input.ListenConfig{MaxMessage: *input.NewMaxMessage(), MaxConns: *input.NewMaxConns()}}
	c.Listeners = []*input.Listener{input.ForwardListener(), input.LokiListener(), input.SyslogListener()}
	cmd := &cobra.Command{
		Use:   "receive",
		Short: "Receive records from clients and print them, for tests",
		Long: `Receive records from clients and print them as JSON lines, for development and tests of
clients without an installed log server.

If no listener flag is given, these listeners are started:
` + input.ListenersHelp(c.Listeners) + `
They accept connections from this machine only. --forward=:24224 accepts connections from all
machines; the value must follow a =. --forward=unix:PATH listens on a unix socket, and with
port 0 the system chooses a port. --syslog listens on 127.0.0.1:5514, over TCP and, without
--tls-cert, over UDP.

Each output line is an object with the available fields of a record: source (the listener),
tenant, tag, labels, metadata, level, time (UTC) and body, an object or a string. A Forward
chunk is acknowledged, and a push to Loki is answered with 204, after all its records are
written to --out, and with --fsync after they are on stable storage.

The command ends on Ctrl-C, on SIGTERM, or after --count records. Chunks already received are
written and answered first. A second signal ends it at once. A repetition of the first signal
within 0.25 s is ignored.

The following flags inject faults, to test the behavior of clients. Here a chunk is a Forward
chunk, a push to Loki or a syslog message:
  --stall waits before it accepts each chunk. --slow limits the bytes per second that are
  read from each connection. --reset and --reject refuse P percent of the chunks. --reset
  resets the connection. --reject answers Loki clients with 429 and 500 in turn, and does not
  answer Forward clients, which then wait for their time limit (forebay: 30s). The refused chunks
  are evenly spread: 25 refuses every fourth one. syslog has no answers, so refused messages are
  lost. A client that ends before it has an answer loses lines: give forebay pipe a longer
  --drain-timeout, or a --spool.

` + receiveExitHelp,
		Example: `  forebay receive
  myapp | forebay pipe --to loki://127.0.0.1:3100 --to forward://127.0.0.1:24224
  forebay receive --forward --count 1000 --out got.jsonl
  forebay receive --forward=:24224 --shared-key-file key --tls-cert cert.pem --tls-key key.pem
  forebay receive --forward --stall 2s --reset 10
  forebay receive --syslog=unixgram:dev-log`,
		Args: noListenerArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.complete(cmd); err != nil {
				return exit.Usage(err)
			}
			return runReceive(c, stdout, stderr)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	for _, l := range c.Listeners {
		fs.Var(l, l.Flag, l.Usage)
		fs.Lookup(l.Flag).NoOptDefVal = l.Address
	}
	fs.StringVarP(&c.out, "out", "o", "", "append the records to `FILE` (default: standard output)")
	fs.BoolVar(&c.fsync, "fsync", false, "sync --out to stable storage before records are acknowledged, so that they survive a power loss")
	fs.VarP(&c.count, "count", "n", "exit with code 0 after at least `N` records; the last chunk is accepted completely (default 0: no limit)")
	fs.StringVar(&c.KeyFile, "shared-key-file", "", "forward: `FILE` with the shared key for clients (default: none)")
	fs.StringVar(&c.User, "user", "", "forward: user `NAME` required in addition to the shared key (default: none)")
	fs.StringVar(&c.PasswordFile, "password-file", "", "forward: `FILE` with the password of --user (default: none)")
	fs.StringVar(&c.TlsCert, "tls-cert", "", "TLS: `FILE` with the certificate for all TCP listeners (default: none)")
	fs.StringVar(&c.TlsKey, "tls-key", "", "TLS: `FILE` with the key of --tls-cert (default: none)")
	fs.StringVar(&c.TlsClientCA, "tls-client-ca", "", "TLS: `FILE` with the CA certificates for clients; other clients are refused (default: none)")
	fs.Var(&c.MaxMessage, "max-message", "maximum size of a message, compressed and decompressed; a longer message ends its connection")
	fs.Var(&c.MaxConns, "max-conns", "number `N` of simultaneous connections to each listener")
	fs.Var(&c.faultInjection.Stall, "stall", "time to wait before each chunk is accepted, or forever (default 0)")
	fs.Var(&c.faultInjection.Reset, "reset", "percentage of chunks to refuse by resetting their connections (default 0)")
	fs.Var(&c.faultInjection.Reject, "reject", "percentage of chunks to refuse without acknowledgement; Loki: answer 429 and 500 (default 0)")
	fs.Var(&c.faultInjection.slow, "slow", "bytes per second to read from each connection, such as 64KiB (default: no limit)")
	fs.BoolVarP(&c.Quiet, "quiet", "q", false, "print only errors on standard error")
	setting.Complete(cmd, "stall", "forever", "2s")
	return cmd
}

const receiveExitHelp = `Exit codes:
  0   a signal ended it, or --count records were received
  1   the output could not be written, or a signal ended it before --count
  2   the command line is wrong
  78  an address, a key or --out cannot be used`

// complete checks the flags. If no listener is given, it selects the default listeners.
func (c *receiveConfig) complete(cmd *cobra.Command) error {
	any := false
	for _, l := range c.Listeners {
		any = any || l.On
	}
	for _, l := range c.Listeners {
		l.On = l.On || !any && l.ByDefault
	}
	switch {
	case c.fsync && c.out == "":
		return errors.New("--fsync needs --out FILE: standard output is not synced")
	case c.faultInjection.Reset+c.faultInjection.Reject > 100:
		return fmt.Errorf("--reset %s and --reject %s: these shares of the chunks add up to more than 100 %%", &c.faultInjection.Reset, &c.faultInjection.Reject)
	}
	if err := c.CheckPairs(); err != nil {
		return err
	}
	c.Slow = int64(c.faultInjection.slow)
	for _, name := range []string{"shared-key-file", "user", "password-file"} {
		if cmd.Flags().Changed(name) && !c.listener("forward").On {
			return fmt.Errorf("--%s is given, but nothing listens for Forward: add --forward", name)
		}
	}
	return nil
}

// listener returns the listener that the named flag selects.
func (c *receiveConfig) listener(flag string) *input.Listener {
	for _, l := range c.Listeners {
		if l.Flag == flag {
			return l
		}
	}
	panic("no listener --" + flag)
}

// noListenerArgs returns an error if there are arguments. The error explains how to write the
// address of a listener.
func noListenerArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	flag := "forward"
	for _, name := range []string{"syslog", "loki", "forward"} {
		if cmd.Flags().Changed(name) {
			flag = name
		}
	}
	return exit.Usage(fmt.Errorf("%s has no arguments, but %q is given; write an address after =, such as --%s=%s",
		cmd.CommandPath(), args[0], flag, args[0]))
}

// runReceive runs the listeners until a signal arrives, an error occurs, or --count records are
// received.
func runReceive(c *receiveConfig, stdout, stderr *os.File) error {
	var out io.Writer = stdout
	if c.out != "" {
		o := file.Options{Mode: 0o644}
		if c.fsync {
			o.Sync = "always"
		}
		f, err := file.Open(c.out, &o)
		if err != nil {
			return exit.Config(outError(err))
		}
		defer f.Close()
		out = f
	}
	arrived := make(chan os.Signal, 4)
	process.Notify(arrived)
	r := &input.Receiver{C: &c.ListenConfig, Action: c.faultInjection.Action(), Reporter: input.NewReporter(stderr)}
	wanted := uint64(c.count.Value)
	var ending process.Signals
	full, failed := make(chan struct{}, 1), make(chan error, 1)
	r.Sink = ndjson.New(out, func(records uint64, err error) {
		switch {
		case err != nil:
			select {
			case failed <- err:
			default:
			}
		case wanted > 0 && records >= wanted:
			select {
			case full <- struct{}{}:
			default:
			}
		}
	})
	start := time.Now()
	if err := r.Listen(); err != nil {
		r.Close(context.Background())
		return exit.Config(err)
	}
	if !c.Quiet {
		for _, text := range c.OpenFiles("--") {
			r.Reporter.Line(text)
		}
	}
	var failure error
	select {
	case <-full:
	case failure = <-failed:
	case sig := <-arrived:
		ending.Second(sig)
	}
	if err := endReceiver(r, &ending, arrived); err != nil && failure == nil {
		failure = err
	}
	select {
	case failure = <-failed:
	default:
	}
	if !c.Quiet {
		r.Reporter.Line(summaryOfReceiver(r, time.Since(start)))
	}
	switch {
	case errors.Is(failure, syscall.EPIPE):
		return exit.Runtime(nil) // print nothing: the reader of the output has exited
	case failure == process.ErrForced, failure == errOutputStalled:
		return exit.Runtime(failure)
	case failure != nil && c.out != "":
		return exit.Runtime(outError(failure))
	case failure != nil:
		return exit.Runtime(fmt.Errorf("cannot write standard output: %w", vfs.Cause(failure)))
	}
	if got := recordsOf(r); got < wanted {
		return exit.Runtime(fmt.Errorf("%s of the %s records of --count were received", units.Count(got), units.Count(wanted)))
	}
	return nil
}
