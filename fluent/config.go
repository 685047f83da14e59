package fluent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forebay-log/forebay/internal/compression"
	"github.com/forebay-log/forebay/internal/secrets"
	"github.com/forebay-log/forebay/internal/tlsfiles"
	"github.com/forebay-log/forebay/internal/values"
	"github.com/forebay-log/forebay/internal/yamlconfig"
	"github.com/forebay-log/forebay/transport"
)

// Defaults of [Config], and limits of its fields.
const (
	defaultServer           = "127.0.0.1:24224"
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
	defaultSyncTimeout      = 10 * time.Second

	// defaultFrameBytes is a compromise. With smaller frames, more acknowledgements are needed.
	// With larger frames, more records arrive twice after a lost connection.
	defaultFrameBytes = 64 << 10
	// defaultMaxFrameBytes leaves a margin of 2 % below fluentBitLimit.
	defaultMaxFrameBytes = 6_000_000
	// fluentBitLimit is the largest frame that Fluent Bit accepts, in bytes.
	fluentBitLimit = 6_144_000
	// defaultBufferBytes is the memory of an output in bytes, if the application sets none.
	defaultBufferBytes = 4 << 20

	maxWindow = 1024
	maxWeight = 1000
)

// The values of Config.Mode. The default is modePacked. Section "Event Modes" of the specification
// defines them:
//
//	modePacked   [tag, bin of concatenated [time, map], option]
//	modeForward  [tag, [[time, map], …], option]
//	modeMessage  [tag, time, map, option]
const (
	modePacked  = "packed-forward"
	modeForward = "forward"
	modeMessage = "message"
)

const (
	// headBytes is an upper bound of the size in bytes of a frame without its tag and payload. It
	// covers the headers of MessagePack, at most 5 bytes each, and the option map. The longest
	// member of the map is the chunk id with 24 bytes.
	headBytes = 128
	// maxHead is an upper bound of the size in bytes of a frame without its payload.
	maxHead = maxTagBytes + headBytes
)

// A Secret is a string that is replaced by a placeholder in the output of package fmt, in JSON, in
// YAML and in log records. There is one exception: package fmt calls no methods of a value in an
// unexported field, so it prints a Secret in such a field.
type Secret string

// Format writes a placeholder for every verb. It implements [fmt.Formatter].
func (s Secret) Format(f fmt.State, verb rune) {
	text, _ := s.MarshalText()
	if verb == 'q' || verb == 'v' && f.Flag('#') {
		text = strconv.AppendQuote(nil, string(text))
	}
	f.Write(text)
}

// MarshalText returns a placeholder, so that an encoded Config does not contain the secret. It
// implements [encoding.TextMarshaler].
func (s Secret) MarshalText() ([]byte, error) {
	if s == "" {
		return nil, nil
	}
	return []byte("(secret)"), nil
}

// Config configures the protocol of a [Driver] and a [Logger]. Memory and delivery are options of
// the output, such as forebay.Spool. The zero value is valid. Each field states its default and
// unit. A Config can be decoded from YAML.
type Config struct {
	// Servers are the addresses in order of preference: HOST, HOST:PORT, tcp://HOST:PORT,
	// tls://HOST:PORT or unix:PATH. The first reachable one is used. Default
	// 127.0.0.1:24224.
	Servers []string `yaml:"servers"`
	// Weights, if not empty, distributes the load over Servers. The list contains one weight, 1 or
	// more, for each server. A connection is used for 10 s, and each server receives connections in
	// proportion to its weight. Records of one tag are therefore sent to several servers. A server
	// that fails is skipped until it is available again. Default: no weights.
	Weights []int `yaml:"weights"`
	// Standby are addresses of servers that are used only while none of Servers is
	// available. Default: none.
	Standby []string `yaml:"standby"`
	// Tag is the tag of records that have no tag. Default "forebay".
	Tag string `yaml:"tag"`
	// TLS configures connections to servers with the scheme tls://. Default: TLS 1.2 or newer.
	TLS transport.TLS `yaml:"tls"`
	// Auth authenticates this client. Default: none.
	Auth Auth `yaml:",inline"`

	// NoAck disables acknowledgements. A record counts as delivered once it is written. When a
	// connection ends, records that are still in the kernel or in the server are lost. Fluentd's
	// in_unix sends no acknowledgements, so unix:PATH of fluentd requires NoAck. After the first
	// message of a connection the client waits for 20 ms to 1 s, because some servers close the
	// connection after one message. The event "no-ack" reports a server that closes ten connections
	// in a row soon after they were opened. Default false.
	NoAck bool `yaml:"no_ack"`
	// Window is the maximum number of batches that are sent but not yet acknowledged. A batch
	// consists of one or more frames. After a lost connection, these batches may arrive twice.
	// Default 4, at most 1024.
	Window int `yaml:"window"`
	// AckTimeout limits the time until an acknowledgement arrives. When it expires, the client
	// closes the connection, and the event "send" reports it. If there is another server, the
	// client skips this one for a while. Default 30 s.
	AckTimeout time.Duration `yaml:"ack_timeout"`
	// Heartbeat is the interval at which a server with an overdue acknowledgement is checked, if
	// there is another server. For a check, the client opens a second connection, with TLS and
	// handshake, and sends no data. If this does not succeed within DialTimeout and
	// HandshakeTimeout, the client disconnects from the server immediately. Default 5 s; negative:
	// never.
	Heartbeat time.Duration `yaml:"heartbeat"`
	// DialTimeout limits the time to connect, HandshakeTimeout the handshake including TLS, and
	// WriteTimeout the time to write one batch. Defaults 5 s, 5 s, 15 s.
	DialTimeout      time.Duration `yaml:"dial_timeout"`
	HandshakeTimeout time.Duration `yaml:"handshake_timeout"`
	WriteTimeout     time.Duration `yaml:"write_timeout"`
	// IdleTimeout is the time after which an unused connection is closed. It should be shorter than
	// the time after which a firewall drops idle connections silently. Default 5 min; negative:
	// never.
	IdleTimeout time.Duration `yaml:"idle_timeout"`
	// Failback is the interval between attempts to return to a preferred server. It is reduced by
	// up to a quarter at random. If the preferred server accepts connections and does not respond,
	// the interval grows up to 10 min. Default 1 min; negative: no attempts while the current
	// server is available.
	Failback time.Duration `yaml:"failback"`
	// ReconnectMin and ReconnectMax limit the time for which a server is skipped after a failed
	// connection. The time doubles with each attempt and is jittered. If all servers are skipped,
	// they are tried anyway, at the retry intervals of the output (deliver.RetryOptions). Defaults
	// 100 ms and 5 s.
	ReconnectMin time.Duration `yaml:"reconnect_min"`
	ReconnectMax time.Duration `yaml:"reconnect_max"`

	// Compress is the compression: "" (none), "gzip", or "zstd" in a program that imports package
	// compress. Only Fluent Bit and fluentd from 1.19 on support zstd; fluentd 1.16 resets the
	// connection. Default "".
	Compress string `yaml:"compress"`
	// Mode is the kind of message. A message in mode "packed-forward" contains a chunk of records
	// as one binary value. All receivers named in the package comment accept this mode, and only
	// this mode supports compression. A message in mode "forward" contains a list of records. A
	// message in mode "message" contains one record, so each record has its own acknowledgement.
	// The modes "forward" and "message" are for receivers without PackedForward. Default
	// "packed-forward".
	Mode string `yaml:"mode"`
	// FrameBytes is the maximum payload of a frame in bytes. A larger record gets a separate frame.
	// Default 64 KiB.
	FrameBytes int `yaml:"frame_bytes"`
	// MaxFrameBytes is the maximum size of a frame in bytes, before and after compression.
	// A record that does not fit is rejected. Fluent Bit accepts 6,144,000. Default
	// 6,000,000.
	MaxFrameBytes int `yaml:"max_frame_bytes"`

	// IntegerTime writes event times in whole seconds, for receivers older than 2016.
	// Default false.
	IntegerTime bool `yaml:"integer_time"`
	// TimeFields is the format of times within records. "rfc3339" is text with up to nine decimals.
	// "event-time" is EventTime, the native type of the protocol; it applies only to times that are
	// fields of the record itself. Times in nested values, before 1970 or after 2106-02-07 06:28:13
	// UTC are always text. Few receivers preserve the type, see docs/RECEIVERS.md. Default
	// "rfc3339".
	TimeFields string `yaml:"time_fields"`
	// MessageKey is the field that [Driver.Encoder] uses for the message, and [Logger.Post]
	// for values that are not maps or structs. Default "msg".
	MessageKey string `yaml:"message_key"`
	// Errors is the amount of detail that [Driver.Encoder] writes for an error attribute: "text"
	// writes only its message, "chain" and "verbose" add attributes. See Errors of
	// [encode.Options]. Default "text".
	Errors string `yaml:"errors"`

	// Dial opens connections; network is "tcp" or "unix". It may be called from several
	// goroutines concurrently. Default: a net.Dialer, which resolves host names for each
	// connection.
	Dial func(ctx context.Context, network, address string) (net.Conn, error) `yaml:"-"`
	// DryRun, if not nil, receives one line for each frame, followed by its records as JSON.
	// Nothing is sent to a server. Default nil.
	DryRun io.Writer `yaml:"-"`

	// Sync makes [Logger.Post] wait until the record is acknowledged or, with NoAck, written. It
	// waits for at most SyncTimeout (default 10 s). Default false.
	Sync        bool          `yaml:"sync"`
	SyncTimeout time.Duration `yaml:"sync_timeout"`
}

// UnmarshalYAML decodes c from YAML. Packages that call a method of this form include yaml.v2 and
// yaml.v3. Unknown keys are an error, which names them. Fields of c without a key in the YAML keep
// their values.
func (c *Config) UnmarshalYAML(unmarshal func(any) error) error {
	return yamlconfig.Decode("fluent", unmarshal, c)
}

// Auth authenticates this client to servers whose configuration has a security section. With the
// zero value there is no handshake: the client sends records immediately.
type Auth struct {
	// SharedKey is the shared_key of the server's security section. SharedKeyFile is a file that
	// contains the key; a newline at its end is removed. With Secured the key may be empty.
	// Default: none.
	SharedKey     Secret `yaml:"shared_key"`
	SharedKeyFile string `yaml:"shared_key_file"`
	// Secured enables the handshake without a key (Fluent Bit's empty_shared_key).
	// Default: true if there is a key or a user.
	Secured bool `yaml:"secured"`
	// User and Password authenticate a user in addition to the key. Default: none.
	User         string `yaml:"user"`
	Password     Secret `yaml:"password"`
	PasswordFile string `yaml:"password_file"`
	// Hostname is the name of this client in the handshake. It must differ from the name of the
	// server. Fluentd rejects a client with the server's name. This client rejects a server with
	// its own name, because such a server could return the client's own proof of the key without
	// knowing the key. Default: the host name followed by ".forebay".
	Hostname string `yaml:"hostname"`
}

// resolved is a validated Config with defaults. It is immutable.
type resolved struct {
	Config
	servers []*server   // servers of Config.Servers, then those of Config.Standby
	tls     *tls.Config // nil if no server has the scheme tls://
	// credentials holds the secrets of Config.Auth; the fields of Config.Auth are cleared. Package
	// fmt does not follow this pointer, so printing the struct does not print the secrets.
	credentials *credentials
}

// credentials are the shared key and the user's password.
type credentials struct{ key, password string }

// setDefault sets *field to value if *field is the zero value.
func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// resolve returns c with defaults applied. The error lists every problem of c and of the files
// named in it.
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
	// The default is at least FrameBytes, so that a frame of the configured size is never
	// rejected.
	setDefault(&c.MaxFrameBytes, max(defaultMaxFrameBytes, min(c.FrameBytes, fluentBitLimit)))
	setDefault(&c.Mode, modePacked)
	setDefault(&c.MessageKey, defaultMessageKey)
	setDefault(&c.SyncTimeout, defaultSyncTimeout)
	if len(c.Servers) == 0 {
		c.Servers = []string{defaultServer}
	}
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	// All fields are checked, so that the user sees all problems at once.
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
		{"SyncTimeout", c.SyncTimeout},
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
	} {
		if n.v < n.min || n.v > n.max {
			bad("Config.%s is %d, must be %d to %d", n.name, n.v, n.min, n.max)
		}
	}
	switch c.Compress {
	case "":
	case "gzip", "zstd":
		if _, err := compression.Find(c.Compress); err != nil {
			bad("Config.Compress is %q: %w", c.Compress, err)
		}
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
	if len(c.Weights) > 0 && len(c.Weights) != len(c.Servers) {
		bad("Config.Weights has %d weights, must have %d: one for each server", len(c.Weights), len(c.Servers))
		c.Weights = nil // cleared, because the loop below must not read it
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
				bad("Config.Weights: the weight of %s is %d, must be 1 to %d", s.label, s.weight, maxWeight)
			}
		}
		usesTLS = usesTLS || s.tls
		r.servers = append(r.servers, s)
	}
	r.secrets(bad)
	if usesTLS {
		var err error
		if r.tls, err = tlsfiles.ClientConfig(c.TLS); err != nil {
			bad("%w", err)
		}
	} else if c.TLS != (transport.TLS{}) {
		bad("Config.TLS is set, but no server has the scheme tls://")
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return r, nil
}

// secrets moves the key and the password from Config.Auth to credentials, and reads them from files
// if Config.Auth names files. It also sets the defaults of Auth. It calls the function bad for each
// error.
func (r *resolved) secrets(bad func(string, ...any)) {
	for _, s := range []struct {
		name  string
		value *Secret
		file  string
	}{{"SharedKey", &r.Auth.SharedKey, r.Auth.SharedKeyFile}, {"Password", &r.Auth.Password, r.Auth.PasswordFile}} {
		if s.file == "" {
			continue
		}
		if *s.value != "" {
			bad("Config.Auth.%s and Config.Auth.%sFile are both set", s.name, s.name)
			continue
		}
		text, err := secrets.ReadFile(s.file)
		if err != nil {
			bad("cannot read Config.Auth.%sFile: %w", s.name, err)
			continue
		}
		*s.value = Secret(text)
		if *s.value != "" {
			continue
		}
		if s.name == "Password" {
			bad("Config.Auth.%sFile: %s is empty", s.name, s.file)
		} else if !r.Auth.Secured && r.Auth.User == "" {
			bad("Config.Auth.%sFile: %s is empty; if the key of the server is empty, set Config.Auth.Secured", s.name, s.file)
		}
	}
	if r.Auth.User == "" && r.Auth.Password != "" {
		bad("Config.Auth.Password is set without User")
	}
	r.Auth.Secured = r.Auth.Secured || r.Auth.SharedKey != "" || r.Auth.User != ""
	// Only credentials contains the secrets, so that no message can contain them by mistake.
	r.credentials = &credentials{string(r.Auth.SharedKey), string(r.Auth.Password)}
	r.Auth.SharedKey, r.Auth.Password = "", ""
	if r.Auth.Hostname == "" {
		name, err := os.Hostname()
		if err != nil || name == "" {
			name = "localhost"
		}
		if len(name) > 200 { // servers require a PING of less than 1 KB
			name = name[:200]
		}
		r.Auth.Hostname = name + ".forebay"
	}
	if n := len(r.Auth.Hostname) + len(r.Auth.User); n > 600 {
		bad("Config.Auth.Hostname and Config.Auth.User have %d bytes together: servers require a handshake of less than 1 KB", n)
	}
}

// checkTimes returns an error if text is not a valid Config.TimeFields.
func checkTimes(text string) error {
	switch text {
	case "", timeText, timeEvent:
		return nil
	}
	return fmt.Errorf("%q is not a time format: use rfc3339 or event-time", text)
}

// checkErrors returns an error if text is not a valid Config.Errors.
func checkErrors(text string) error {
	if forms := values.ErrorForms[:values.ErrorVerbose+1]; text != "" && !slices.Contains(forms, text) {
		return fmt.Errorf("%q is not an error format: use %s", text, strings.Join(forms, ", "))
	}
	return nil
}
