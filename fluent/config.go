package fluent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/slab"
)

// Defaults of [Config].
const (
	defaultServer           = "127.0.0.1:24224"
	defaultPort             = 24224
	defaultWindow           = 4
	defaultMessageKey       = "msg"
	defaultAckTimeout       = 30 * time.Second
	defaultDialTimeout      = 5 * time.Second
	defaultHandshakeTimeout = 5 * time.Second
	defaultWriteTimeout     = 15 * time.Second
	defaultIdleTimeout      = 5 * time.Minute
	defaultFailback         = time.Minute
	defaultHeartbeat        = 5 * time.Second
	defaultReconnectMin     = 100 * time.Millisecond
	defaultReconnectMax     = 5 * time.Second
	defaultFrameBytes       = 64 << 10
	defaultMaxFrameBytes    = 6_000_000
	defaultBufferBytes      = 4 << 20
	defaultSyncTimeout      = 10 * time.Second
	defaultCloseTimeout     = 5 * time.Second
	defaultSpoolBytes       = 1 << 30

	// fluentBitLimit is the largest frame that Fluent Bit takes.
	fluentBitLimit = 6_144_000
	maxWindow      = 1024
	maxWeight      = 1000
	minSpoolBytes  = 16 << 10 // the least MaxBytes of package spool
)

// A Secret is a string. Package fmt, JSON, YAML and log records show a placeholder in
// its place. In a field whose name is not exported package fmt shows the string itself,
// because it calls no methods there.
type Secret string

// Format writes a placeholder, whatever the verb.
func (s Secret) Format(f fmt.State, verb rune) {
	text, _ := s.MarshalText()
	if verb == 'q' || verb == 'v' && f.Flag('#') {
		text = strconv.AppendQuote(nil, string(text))
	}
	f.Write(text)
}

// MarshalText returns a placeholder, so that a printed Config gives nothing away.
func (s Secret) MarshalText() ([]byte, error) {
	if s == "" {
		return nil, nil
	}
	return []byte("(secret)"), nil
}

// TLS says how servers named tls:// are spoken to.
type TLS struct {
	// CAFile is a PEM file with the authorities that may sign server
	// certificates. Default: those of the system.
	CAFile string `yaml:"ca_file"`
	// CertFile and KeyFile are PEM files with the client's own certificate, for
	// servers that ask for one. Default: none.
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
	// ServerName is the name that the server's certificate must have, and that is
	// sent to it. Default: the host of the address.
	ServerName string `yaml:"server_name"`
	// MinVersion is "1.2" or "1.3". Default "1.2".
	MinVersion string `yaml:"min_version"`
	// AcceptAnyCertificate turns verification off: anybody in between can read
	// and change what is sent. For tests only. Default false.
	AcceptAnyCertificate bool `yaml:"accept_any_certificate"`
	// Config is the base that the fields above are applied to. Default nil.
	Config *tls.Config `yaml:"-"`
}

// Config configures a [Sink], a [Logger] and a [Client]. The zero value is useful: each field
// states its default and unit. It can be decoded from YAML.
type Config struct {
	// Servers are the addresses, in the order of preference: HOST, HOST:PORT,
	// tcp://HOST:PORT, tls://HOST:PORT or unix:PATH. The first that works is
	// used. Default 127.0.0.1:24224.
	Servers []string `yaml:"servers"`
	// Weights, one for each of Servers, have them take turns instead: each connection is
	// used for 10 s, and a server has as many as its weight, 1 or more, says beside those of
	// the others. Records of one tag then go to several servers. A server that fails has no
	// turn until it is back. Default none.
	Weights []int `yaml:"weights"`
	// Standby are addresses of servers that are used only while none of Servers works.
	// Default none.
	Standby []string `yaml:"standby"`
	// Tag is the tag of records that bring none. Default "forebay".
	Tag string `yaml:"tag"`
	TLS TLS    `yaml:"tls"`

	// SharedKey is the key of a server with a security section. SharedKeyFile
	// names a file that holds it, without the newline at its end; it may be empty
	// where Secured is set. Default: none.
	SharedKey     Secret `yaml:"shared_key"`
	SharedKeyFile string `yaml:"shared_key_file"`
	// Secured says that the server begins with a handshake even though there is
	// no key (Fluent Bit's empty_shared_key). Default: if there is a key or user.
	Secured bool `yaml:"secured"`
	// User and Password authenticate a user beside the key. Default: none.
	User         string `yaml:"user"`
	Password     Secret `yaml:"password"`
	PasswordFile string `yaml:"password_file"`
	// Hostname is the name of this client in the handshake. It must differ from that of
	// the server: fluentd refuses a client of its own name, and this client refuses a
	// server of its name, which could send back the client's own proof of the key.
	// Default: the machine's name followed by ".forebay".
	Hostname string `yaml:"hostname"`

	// NoAck asks for no acknowledgements. A record counts as delivered once it is
	// written, so records that the kernel or the server still held when the connection
	// ended are lost. Fluentd's in_unix sends no acknowledgements: unix:PATH of fluentd
	// needs NoAck. After the first message of a connection the client waits briefly
	// (20 ms to 1 s), because some servers close after one message and do not say so.
	// The event "no-ack" tells of a server that only takes connections, as far as that can
	// be told. Default false.
	NoAck bool `yaml:"no_ack"`
	// Window is how many batches may be unacknowledged at once. Default 4.
	Window int `yaml:"window"`
	// AckTimeout is how long an acknowledgement may take. After one that is late the
	// client leaves the server, and passes it over for a while if there is another.
	// Default 30 s.
	AckTimeout time.Duration `yaml:"ack_timeout"`
	// Heartbeat is how often, if there is another server, one that owes an
	// acknowledgement for so long is looked at: by a further connection with TLS and
	// handshake, and nothing else. If that fails within DialTimeout and HandshakeTimeout,
	// the client leaves the server at once. Default 5 s; negative: never.
	Heartbeat time.Duration `yaml:"heartbeat"`
	// DialTimeout, HandshakeTimeout (TLS included) and WriteTimeout (of one
	// batch) bound what they are named after. Defaults 5 s, 5 s, 15 s.
	DialTimeout      time.Duration `yaml:"dial_timeout"`
	HandshakeTimeout time.Duration `yaml:"handshake_timeout"`
	WriteTimeout     time.Duration `yaml:"write_timeout"`
	// IdleTimeout is how long a connection may be unused before it is closed, so that
	// no firewall on the way forgets it. Default 5 min; negative: it is never closed.
	IdleTimeout time.Duration `yaml:"idle_timeout"`
	// Failback is the time, less up to a quarter at random, between attempts to return to a
	// server that is preferred to the one in use. It grows up to 10 min for a server that takes connections and
	// does not answer. Default 1 min; negative: none while the server in use works.
	Failback time.Duration `yaml:"failback"`
	// ReconnectMin and ReconnectMax bound the time for which a server is passed over
	// after a failed connection. The time is jittered and doubles with each attempt. If
	// no other server is left it is tried nevertheless, at the pace of Retry. Defaults
	// 100 ms and 5 s.
	ReconnectMin time.Duration `yaml:"reconnect_min"`
	ReconnectMax time.Duration `yaml:"reconnect_max"`

	// Compress is "", "gzip" or "zstd", which fluentd takes from 1.19 on, Fluent Bit,
	// and no other receiver: fluentd 1.16 resets the connection. Default "".
	Compress string `yaml:"compress"`
	// Mode is the kind of message. "packed-forward" holds a chunk of records, which only
	// the receiver's outputs take apart; all receivers named in the package comment take
	// it, and it alone can be compressed. "forward" is a list of records; "message" is one
	// record. They are for receivers that know no PackedForward; with "message" each record has
	// an acknowledgement of its own. Default "packed-forward".
	Mode string `yaml:"mode"`
	// FrameBytes is the most payload bytes of a frame; a larger record has a frame of
	// its own. Default 64 KiB.
	FrameBytes int `yaml:"frame_bytes"`
	// MaxFrameBytes is the largest frame in bytes, before and after compression. A
	// record that needs a larger one is refused. Fluent Bit takes 6,144,000. Default
	// 6,000,000.
	MaxFrameBytes int `yaml:"max_frame_bytes"`

	// IntegerTime writes the time of events in whole seconds, for receivers of
	// before 2016. Default false.
	IntegerTime bool `yaml:"integer_time"`
	// TimeFields is how times within records are written. "rfc3339" is text with up to
	// nine digits of a second. "event-time" is EventTime, the protocol's own form, for
	// times that are fields of the record itself; times in values nested in it are
	// text. Times before 1970 and from February 2106 on, which it cannot hold, are text,
	// too. Few receivers keep it a time: see docs/RECEIVERS.md. Default "rfc3339".
	TimeFields string `yaml:"time_fields"`
	// MessageKey is the field of the message, of what [Sink.Encoder] encodes, and of
	// posted records that are no map or struct. Default "msg".
	MessageKey string `yaml:"message_key"`
	// Errors says how much [Sink.Encoder] writes of an error among the attributes of a
	// record: "text", its message, or "chain" or "verbose", with more beside it, see
	// Errors of [encode.Options]. Default "text".
	Errors string `yaml:"errors"`

	// Name stands in reports and events. Default "fluent".
	Name string `yaml:"name"`
	// Dial makes connections. Default: a net.Dialer, which looks names up anew
	// each time.
	Dial func(ctx context.Context, network, address string) (net.Conn, error) `yaml:"-"`
	// DryRun, if not nil, is written to instead of a server: a line for each frame, and
	// its records as JSON below. Nothing is sent. Default nil.
	DryRun io.Writer `yaml:"-"`

	// What follows is not for a bare [Client].

	// Sync makes [Logger.Post] wait until the record is acknowledged (with NoAck:
	// written), for at most SyncTimeout (default 10 s). Default false.
	Sync        bool          `yaml:"sync"`
	SyncTimeout time.Duration `yaml:"sync_timeout"`
	// BufferBytes is the memory for records that wait, in at least two slabs of
	// SlabBytes. Defaults 4 MiB and 64 KiB, or half of BufferBytes. Records larger than
	// a slab count in it; if there is no room, one of them is taken nevertheless, see
	// slab.Options.SlabCount. Batches under way stay in it until they are acknowledged.
	// On top of it come copies of the batches under way with CrashDir, at most half as
	// much, records set aside while they are suspected, at most a quarter as much and 4 MiB,
	// and the memory in which frames are put together.
	BufferBytes int `yaml:"buffer_bytes"`
	SlabBytes   int `yaml:"slab_bytes"`
	// WhenFull is what Post does when the buffer is full: block-for=DURATION, which waits
	// at most that long and then drops the record, and the next ones at once until there
	// is room; block, drop-newest, drop-oldest, or spill, which puts the oldest records into
	// SpoolDir or Spill. Default block-for=250ms.
	WhenFull string `yaml:"when_full"`
	// FlushInterval is how long a record waits for others at most. Default
	// 100 ms.
	FlushInterval time.Duration `yaml:"flush_interval"`
	// MaxRecord is the largest record in bytes. Default 1 MiB.
	MaxRecord int `yaml:"max_record"`
	// CloseTimeout bounds Close where its context has no deadline. Default 5 s.
	CloseTimeout time.Duration `yaml:"close_timeout"`
	// PendingLimit is how many records may wait before ErrorHandler is asked: if more do when a
	// connection fails, a batch is refused or an acknowledgement is late (AckTimeout), and at
	// each FlushInterval until the next attempt. Default 0: at the first failure. A buffer that
	// is full has it asked before anything is dropped, also when the server only hangs.
	PendingLimit int `yaml:"pending_limit"`
	// ErrorHandler is offered the records that wait while the server is down, see
	// [deliver.ErrorHandler], [FallbackTo] and [deliver.JSONLines]. Default nil.
	ErrorHandler deliver.ErrorHandler `yaml:"-"`
	// FallbackFile is an ErrorHandler that decodes: what the server does not take
	// is appended to this file as JSON lines (0600), where it counts as handled.
	// Not together with ErrorHandler. Default: none.
	FallbackFile string `yaml:"fallback_file"`
	// DeadLetter is handed records that were refused for good, see
	// [deliver.DeadLetters]; DeadLetterFile is a file they are appended to as JSON
	// lines (0600) instead. Default: dead-letters.jsonl in SpoolDir, which the first one
	// makes; without SpoolDir they are counted only.
	DeadLetter     deliver.ErrorHandler `yaml:"-"`
	DeadLetterFile string               `yaml:"dead_letter_file"`
	// SpoolDir is a directory that holds, on disk, what waits while the server is
	// down and ErrorHandler does not take it. What Close could not deliver stays
	// there: the next Sink with this directory, in this process or another,
	// delivers it before anything newer. It belongs to one Logger at a time.
	// Default: none. Spill is another such store, see package spool.
	SpoolDir string        `yaml:"spool_dir"`
	Spill    deliver.Spill `yaml:"-"`
	// SpoolBytes is what SpoolDir may take on disk; over it the oldest records
	// are dropped and counted. Default 1 GiB.
	SpoolBytes int64 `yaml:"spool_bytes"`
	// SpoolSync says when the spool is put on stable storage: never (it survives
	// the death of the process, not that of the machine), interval (each second)
	// or always. Default never.
	SpoolSync string `yaml:"spool_sync"`
	// CrashDir is a directory for a file that holds the buffer. Records whose Post has
	// returned then survive the death of the process: SIGKILL, os.Exit, a panic. The
	// next Sink with this directory delivers them first. Records that Close could not
	// deliver stay there, too, if there is no spool. A tmpfs is the best place. On
	// systems other than Linux and macOS, and if the file cannot be made, OnError is
	// told and the buffer is in memory. Default: none.
	CrashDir string `yaml:"crash_dir"`
	// Retry and Breaker say how often and for how long records are sent again, and
	// when the server is left alone. Default nil: the defaults of package deliver.
	Retry   *deliver.RetryOptions   `yaml:"-"`
	Breaker *deliver.BreakerOptions `yaml:"-"`
	// OnError is told of transitions: failure, recovery, drops, what was found on
	// disk. The buffer, the delivery and the spool each call it on a goroutine of
	// their own behind a bounded queue. Default nil: a line on standard error.
	OnError func(batch.Event) `yaml:"-"`
}

// resolved is a Config with defaults, ready to use.
type resolved struct {
	Config
	servers  []*server
	whenFull slab.WhenFull
	tls      *tls.Config
	// credentials are those of Config, whose own are empty: behind a pointer they stay
	// hidden also from who prints what holds a resolved.
	credentials *credentials
}

type credentials struct{ key, password string }

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// resolve returns what c means. The error names everything that is wrong with c, and
// with the files that it names.
func (c Config) resolve() (*resolved, error) {
	setDefault(&c.Tag, "forebay")
	setDefault(&c.Window, defaultWindow)
	setDefault(&c.AckTimeout, defaultAckTimeout)
	setDefault(&c.DialTimeout, defaultDialTimeout)
	setDefault(&c.HandshakeTimeout, defaultHandshakeTimeout)
	setDefault(&c.WriteTimeout, defaultWriteTimeout)
	setDefault(&c.IdleTimeout, defaultIdleTimeout)
	setDefault(&c.Failback, defaultFailback)
	setDefault(&c.Heartbeat, defaultHeartbeat)
	setDefault(&c.ReconnectMin, defaultReconnectMin)
	setDefault(&c.ReconnectMax, max(defaultReconnectMax, c.ReconnectMin))
	setDefault(&c.FrameBytes, defaultFrameBytes)
	setDefault(&c.MaxFrameBytes, max(defaultMaxFrameBytes, min(c.FrameBytes, fluentBitLimit)))
	setDefault(&c.Mode, modePacked)
	setDefault(&c.MessageKey, defaultMessageKey)
	setDefault(&c.Name, "fluent")
	setDefault(&c.SyncTimeout, defaultSyncTimeout)
	setDefault(&c.BufferBytes, defaultBufferBytes)
	setDefault(&c.SlabBytes, min(slab.DefaultSlabBytes, max(slab.MinSlabBytes, c.BufferBytes/2)))
	setDefault(&c.WhenFull, "block-for=250ms")
	setDefault(&c.MaxRecord, min(slab.DefaultMaxRecord, max(1, c.MaxFrameBytes-maxHead)))
	setDefault(&c.CloseTimeout, defaultCloseTimeout)
	setDefault(&c.SpoolBytes, defaultSpoolBytes)
	setDefault(&c.SpoolSync, "never")
	if len(c.Servers) == 0 {
		c.Servers = []string{defaultServer}
	}
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	r := &resolved{Config: c}
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("fluent: "+format, args...))
	}
	for _, d := range []struct {
		name string
		v    time.Duration
	}{
		{"AckTimeout", c.AckTimeout}, {"DialTimeout", c.DialTimeout}, {"HandshakeTimeout", c.HandshakeTimeout},
		{"WriteTimeout", c.WriteTimeout}, {"ReconnectMin", c.ReconnectMin}, {"ReconnectMax", c.ReconnectMax},
		{"SyncTimeout", c.SyncTimeout}, {"CloseTimeout", c.CloseTimeout},
	} {
		if d.v < 0 {
			bad("Config.%s is %s, must be more than 0", d.name, d.v)
		}
	}
	if c.ReconnectMax < c.ReconnectMin {
		bad("Config.ReconnectMax is %s, below ReconnectMin, which is %s", c.ReconnectMax, c.ReconnectMin)
	}
	for _, n := range []struct {
		name        string
		v, min, max int
	}{
		{"Window", c.Window, 1, maxWindow},
		{"FrameBytes", c.FrameBytes, 1, c.MaxFrameBytes},
		{"MaxFrameBytes", c.MaxFrameBytes, 2 * maxHead, 1 << 30},
		{"SlabBytes", c.SlabBytes, slab.MinSlabBytes, slab.MaxSlabBytes},
		{"BufferBytes", c.BufferBytes, 2 * slab.MinSlabBytes, math.MaxInt},
		{"MaxRecord", c.MaxRecord, 1, c.MaxFrameBytes - maxHead},
	} {
		if n.v < n.min || n.v > n.max {
			bad("Config.%s is %d, must be %d to %d", n.name, n.v, n.min, n.max)
		}
	}
	if c.BufferBytes >= 2*slab.MinSlabBytes && c.SlabBytes <= slab.MaxSlabBytes && c.SlabBytes > c.BufferBytes/2 {
		bad("Config.SlabBytes is %d, more than half of BufferBytes, which is %d: there must be two slabs", c.SlabBytes, c.BufferBytes)
	}
	switch c.Compress {
	case "", "gzip", "zstd":
	default:
		bad("Config.Compress is %q, must be empty, gzip or zstd", c.Compress)
	}
	switch c.Mode {
	case modePacked:
	case modeForward, modeMessage:
		if c.Compress != "" {
			bad("Config.Compress is %s, but Config.Mode is %s: only %s can be compressed", c.Compress, c.Mode, modePacked)
		}
	default:
		bad("Config.Mode is %q, must be %s, %s or %s", c.Mode, modePacked, modeForward, modeMessage)
	}
	if err := checkTimes(c.TimeFields); err != nil {
		bad("Config.TimeFields: %w", err)
	}
	if err := checkErrors(c.Errors); err != nil {
		bad("Config.Errors: %w", err)
	}
	if err := checkTag(c.Tag); err != nil {
		bad("Config.Tag: %w", err)
	}
	var err error
	if r.whenFull, err = slab.ParseWhenFull(c.WhenFull); err != nil {
		bad("Config.WhenFull: %w", err)
	} else if r.whenFull == slab.Spill() && c.SpoolDir == "" && c.Spill == nil {
		bad("Config.WhenFull is %s, but there is no SpoolDir and no Spill", c.WhenFull)
	}
	switch c.SpoolSync {
	case "never", "interval", "always":
	default:
		bad("Config.SpoolSync is %q, must be never, interval or always", c.SpoolSync)
	}
	if c.SpoolBytes < minSpoolBytes {
		bad("Config.SpoolBytes is %d, must be at least %d", c.SpoolBytes, minSpoolBytes)
	}
	for _, two := range []struct {
		a, b string
		both bool
	}{
		{"FallbackFile", "ErrorHandler", c.FallbackFile != "" && c.ErrorHandler != nil},
		{"DeadLetterFile", "DeadLetter", c.DeadLetterFile != "" && c.DeadLetter != nil},
		{"SpoolDir", "Spill", c.SpoolDir != "" && c.Spill != nil},
	} {
		if two.both {
			bad("Config.%s and Config.%s are both set", two.a, two.b)
		}
	}
	if len(c.Weights) > 0 && len(c.Weights) != len(c.Servers) {
		bad("Config.Weights has %d, must have one for each of the %d servers", len(c.Weights), len(c.Servers))
		c.Weights = nil
	}
	usesTLS := false
	for i, text := range slices.Concat(c.Servers, c.Standby) {
		s, err := parseServer(text)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if s.standby = i >= len(c.Servers); !s.standby && len(c.Weights) > 0 {
			if s.weight = c.Weights[i]; s.weight < 1 || s.weight > maxWeight {
				bad("Config.Weights: that of %s is %d, must be 1 to %d", s.label, s.weight, maxWeight)
			}
		}
		usesTLS = usesTLS || s.tls
		r.servers = append(r.servers, s)
	}
	r.secrets(bad)
	if usesTLS {
		if r.tls, err = c.TLS.config(); err != nil {
			errs = append(errs, err)
		}
	} else if c.TLS != (TLS{}) {
		bad("Config.TLS is set, but no server is named tls://")
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return r, nil
}

// secrets reads keys from files and completes the handshake's part.
func (r *resolved) secrets(bad func(string, ...any)) {
	for _, s := range []struct {
		name  string
		value *Secret
		file  string
	}{{"SharedKey", &r.SharedKey, r.SharedKeyFile}, {"Password", &r.Password, r.PasswordFile}} {
		if s.file == "" {
			continue
		}
		if *s.value != "" {
			bad("Config.%s and Config.%sFile are both set", s.name, s.name)
			continue
		}
		text, err := os.ReadFile(s.file)
		if err != nil {
			bad("cannot read Config.%sFile: %w", s.name, err)
			continue
		}
		*s.value = Secret(strings.TrimRight(string(text), "\r\n"))
		if *s.value != "" {
			continue
		}
		if s.name == "Password" {
			bad("Config.%sFile: %s is empty", s.name, s.file)
		} else if !r.Secured && r.User == "" {
			bad("Config.%sFile: %s is empty: if the server's key is, set Config.Secured", s.name, s.file)
		}
	}
	if r.User == "" && r.Password != "" {
		bad("Config.Password is set without User")
	}
	r.Secured = r.Secured || r.SharedKey != "" || r.User != ""
	r.credentials = &credentials{string(r.SharedKey), string(r.Password)}
	r.SharedKey, r.Password = "", ""
	if r.Hostname == "" {
		name, err := os.Hostname()
		if err != nil || name == "" {
			name = "localhost"
		}
		if len(name) > 200 {
			name = name[:200]
		}
		r.Hostname = name + ".forebay"
	}
	if n := len(r.Hostname) + len(r.User); n > 600 {
		bad("Config.Hostname and Config.User have %d bytes together: servers want a handshake of less than 1 KB", n)
	}
}

func (t TLS) config() (*tls.Config, error) {
	c := &tls.Config{}
	if t.Config != nil {
		c = t.Config.Clone()
	}
	switch t.MinVersion {
	case "", "1.2":
		c.MinVersion = max(c.MinVersion, tls.VersionTLS12)
	case "1.3":
		c.MinVersion = tls.VersionTLS13
	default:
		return nil, fmt.Errorf("fluent: Config.TLS.MinVersion is %q, must be 1.2 or 1.3", t.MinVersion)
	}
	if t.ServerName != "" {
		c.ServerName = t.ServerName
	}
	if t.AcceptAnyCertificate {
		c.InsecureSkipVerify = true
	}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("fluent: cannot read Config.TLS.CAFile: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("fluent: Config.TLS.CAFile: %s has no PEM certificate", t.CAFile)
		}
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		return nil, errors.New("fluent: Config.TLS.CertFile and Config.TLS.KeyFile belong together: one is missing")
	}
	if t.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("fluent: cannot load the client certificate (Config.TLS.CertFile, KeyFile): %w", err)
		}
		c.Certificates = []tls.Certificate{cert}
	}
	return c, nil
}
