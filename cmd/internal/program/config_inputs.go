package program

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/forebay-log/forebay/cmd/internal/conf"
	"github.com/forebay-log/forebay/cmd/internal/join"
	"github.com/forebay-log/forebay/cmd/internal/tail"
	"github.com/forebay-log/forebay/internal/record"
)

// inputSettings are what a configuration file says of an input.
type inputSettings struct {
	Type inputType

	Format choice
	Time   choice
	Zone   zone

	Files        list
	State        path
	From         choice
	Multiline    list
	PartialAfter duration
	PathKey      text
	MaxRotated   count

	Units       list
	Identifiers list
	Directory   path
	AllFields   toggle

	Listen        text
	SharedKeyFile text
	User          text
	PasswordFile  text
	TLSCert       text
	TLSClientCA   text
	TLSKey        text
	MaxMessage    size
	MaxConns      count

	more []setting // of the types that [With] adds, by moreInOpts
}

// The kinds of inputs.
var (
	inputTypes = []string{"stdin", "tail", "journal", "forward", "loki", "syslog"}
	readers    = []string{"tail", "journal"} // that store how far they are
	listeners  = []string{"forward", "loki", "syslog"}
)

func newInputSettings() inputSettings {
	return inputSettings{
		Type:       inputType{choice{of: inputTypes}},
		Format:     choice{value: record.Auto.String(), of: record.Formats()},
		Time:       choice{value: "line", of: timeNames},
		From:       choice{of: []string{"start", "end"}},
		MaxMessage: size{32 << 20, 64 << 10, 256 << 20},
		MaxRotated: maxRotated,
		MaxConns:   count{256, 1, 0, ""},
		more:       settingsOf(moreInOpts),
	}
}

// An inputOption is something that an input can be told.
type inputOption struct {
	name  string
	of    []string // the inputs it is for; nil: all
	value func(*inputSettings) setting
	what  string // for docs/CONFIG.md
}

// inputOptions are all options of inputs, in the order of docs/CONFIG.md.
var inputOptions = []inputOption{
	{"type", nil, func(c *inputSettings) setting { return &c.Type }, "stdin, tail, journal, forward, loki or syslog"},
	{"format", nil, func(c *inputSettings) setting { return &c.Format }, "what the lines are: auto, json, logfmt or text"},
	{"time", nil, func(c *inputSettings) setting { return &c.Time }, "the time of a line: the one in it (line), that of its arrival (now), or that where it has none, which the field time_from=arrival then says (line-or-now)"},
	{"zone", nil, func(c *inputSettings) setting { return &c.Zone }, "the zone of times that name none"},
	{"files", []string{"tail"}, func(c *inputSettings) setting { return &c.Files }, "the files to follow: paths, or patterns with *, ? and []"},
	{"state", readers, func(c *inputSettings) setting { return &c.State }, "the directory that says how far each file, or the journal, is delivered; without it nothing is kept"},
	{"from", readers, func(c *inputSettings) setting { return &c.From }, "where to begin in what is there at the start and not in state: start or end"},
	{"multiline", []string{"stdin", "tail"}, func(c *inputSettings) setting { return &c.Multiline }, "which lines are one record: go, java, dotnet, node, python, ruby, rust, cri, docker, auto, or a pattern"},
	{"partial-after", []string{"tail"}, func(c *inputSettings) setting { return &c.PartialAfter }, "take a last line without a newline after it has not grown for that long; 0: wait"},
	{"path-key", []string{"tail"}, func(c *inputSettings) setting { return &c.PathKey }, "add the path of the file as this field"},
	{"max-rotated", []string{"tail"}, func(c *inputSettings) setting { return &c.MaxRotated }, "how many rotated files of a path are kept open until they are read; more are lost, and reported"},
	{"units", []string{"journal"}, func(c *inputSettings) setting { return &c.Units }, "entries of these units only; a unit may have *, ? and [] in it"},
	{"identifiers", []string{"journal"}, func(c *inputSettings) setting { return &c.Identifiers }, "entries with these identifiers only, which are names of programs"},
	{"directory", []string{"journal"}, func(c *inputSettings) setting { return &c.Directory }, "the directory of another journal; default: this machine's"},
	{"all-fields", []string{"journal"}, func(c *inputSettings) setting { return &c.AllFields }, "take all fields of an entry, by the names that they have in the journal"},
	{"listen", listeners, func(c *inputSettings) setting { return &c.Listen }, "the address, such as 0.0.0.0:24224, unix:PATH or, for syslog, udp://HOST:PORT and unixgram:PATH; default: the protocol's port, for this machine alone"},
	{"shared-key-file", []string{"forward"}, func(c *inputSettings) setting { return &c.SharedKeyFile }, "the file with the key that clients must know"},
	{"user", []string{"forward"}, func(c *inputSettings) setting { return &c.User }, "the user that clients must log in as"},
	{"password-file", []string{"forward"}, func(c *inputSettings) setting { return &c.PasswordFile }, "the file with the password of user"},
	{"tls-cert", listeners, func(c *inputSettings) setting { return &c.TLSCert }, "the file with the certificate of this server"},
	{"tls-key", listeners, func(c *inputSettings) setting { return &c.TLSKey }, "the file with its key"},
	{"tls-client-ca", listeners, func(c *inputSettings) setting { return &c.TLSClientCA }, "the file with the authorities that sign the certificates of clients; nobody else is let in"},
	{"max-message", listeners, func(c *inputSettings) setting { return &c.MaxMessage }, "the longest message, as it comes and decompressed"},
	{"max-conns", listeners, func(c *inputSettings) setting { return &c.MaxConns }, "how many connections there may be at a time"},
}

// inputOptionsOf returns the names of the options of a kind of input.
func inputOptionsOf(kind string) (names []string) {
	for _, o := range inputOptions {
		if o.of == nil || slices.Contains(o.of, kind) {
			names = append(names, o.name)
		}
	}
	return names
}

// kind returns the input that the settings describe. Its error names options as flags.
func (c *inputSettings) kind(name string, stdin *os.File) (inputKind, error) {
	rules, err := join.Parse(c.Multiline)
	if err != nil {
		return nil, fmt.Errorf("--multiline: %w", err)
	}
	switch kind := c.Type.value; kind {
	case "stdin":
		return stdinInput{stdin, rules}, nil
	case "journal":
		return &journalInput{c.journal()}, nil
	case "tail":
		f := &tailFlags{files: c.Files, state: string(c.State), from: c.From, partial: c.PartialAfter, join: rules, pathKey: string(c.PathKey), rotated: c.MaxRotated}
		if len(c.Files) == 0 {
			return nil, errors.New("--files is missing: name the files to follow")
		}
		for _, path := range c.Files {
			if path == "" {
				return nil, errors.New("a path in --files is empty")
			}
			if err := tail.CheckPattern(path); err != nil {
				return nil, fmt.Errorf("%s in --files is no pattern: %w", path, err)
			}
		}
		return f, nil
	default:
		if i := slices.IndexFunc(moreInputs, func(in Input) bool { return in.Name == kind }); i >= 0 {
			in := &moreInput{moreInputs[i], c}
			return in, in.check()
		}
		r := &receiveConfig{
			listeners: []*listener{map[string]func() *listener{
				"forward": forwardListener, "loki": lokiListener, "syslog": syslogListener,
			}[kind]()},
			maxMessage: c.MaxMessage, maxConns: c.MaxConns.value, keyFile: string(c.SharedKeyFile), user: string(c.User),
			passwordFile: string(c.PasswordFile), tlsCert: string(c.TLSCert), tlsKey: string(c.TLSKey), tlsClientCA: string(c.TLSClientCA),
		}
		l := r.listeners[0]
		l.on, l.value, l.input = true, string(c.Listen), name
		if l.value == "" {
			l.value = l.address
		}
		return &listenInput{l, r}, r.check(l)
	}
}

// check looks at what concerns one listener alone.
func (c *receiveConfig) check(l *listener) error {
	switch {
	case (c.tlsCert == "") != (c.tlsKey == ""):
		return errors.New("--tls-cert and --tls-key belong together: one is missing")
	case c.tlsClientCA != "" && c.tlsCert == "":
		return errors.New("--tls-client-ca needs --tls-cert and --tls-key: clients show certificates to a server that has one")
	case (c.user == "") != (c.passwordFile == ""):
		return errors.New("--user and --password-file belong together: one is missing")
	case c.user != "" && c.keyFile == "":
		return errors.New("--user needs --shared-key-file: clients log in with both")
	}
	for _, f := range []struct{ name, path string }{{"--shared-key-file", c.keyFile}, {"--password-file", c.passwordFile}} {
		if _, err := secretFile(f.name, f.path); err != nil {
			return err
		}
	}
	if _, err := c.serverTLS(); err != nil {
		return err
	}
	_, err := l.endpoints()
	return err
}

// addInput reads an input. One with faults is there for [pipeConfig.checkTogether] alone.
func (c *pipeConfig) addInput(name string, v conf.Node, stdin *os.File) {
	checkName(name, v)
	c.declared = append(c.declared, name)
	var names []string
	for _, o := range inputOptions {
		names = append(names, o.name)
	}
	if isElsewhere(textOf(v, "type")) != "" && !slices.Contains(inputTypes, textOf(v, "type")) {
		names = nil // so are its options
	}
	it := readItem(v, names)
	in := &inputConfig{name: name, settings: newInputSettings(), item: it}
	c.inputs = append(c.inputs, in)
	s := &in.settings
	if _, ok := it.fields["type"]; ok {
		it.give("type", &s.Type, nil)
		it.given = nil // no other fault goes away without it
	} else if !it.has("type") && !v.Broken() {
		v.Faultf("type is missing: use %s", strings.Join(inputTypes, ", "))
	}
	kind := s.Type.value
	for _, o := range inputOptions {
		_, ok := it.fields[o.name]
		switch {
		case !ok || o.name == "type":
		case kind != "" && o.of != nil && !slices.Contains(o.of, kind):
			it.wrong(o.name, "it is for inputs of type %s; those of type %s have %s", inWords(o.of, "and"), kind, strings.Join(inputOptionsOf(kind), ", "))
		default:
			it.give(o.name, o.value(s), nil)
		}
	}
	in.format, _ = record.ParseFormat(s.Format.value)
	in.zone, in.times = s.Zone, parseTimes(s.Time.value)
	if kind == "" {
		return
	}
	it.settle(func() (err error) {
		in.kind, err = s.kind("inputs."+name, stdin)
		return err
	}, func(err error) string {
		return withoutFlags(strings.TrimPrefix(err.Error(), "inputs."+name+" "))
	}, func(err error) bool {
		v.Faultf("%s", withoutFlags(strings.TrimPrefix(err.Error(), "inputs."+name+" ")))
		return false
	})
	in.secrets = sumOf(append(secretFiles(moreInOpts, s.more), string(s.SharedKeyFile), string(s.PasswordFile), string(s.TLSCert), string(s.TLSKey), string(s.TLSClientCA))...)
}
