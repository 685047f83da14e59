package program

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/forebay-log/forebay/cmd/internal/conf"
	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/join"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/cmd/internal/tail"
	"github.com/forebay-log/forebay/internal/record"
)

// The kinds of inputs.
var (
	inputTypes = []string{"stdin", "tail", "journal", "forward", "loki", "syslog"}
	readers    = []string{"tail", "journal"} // that store how far they are
	listeners  = []string{"forward", "loki", "syslog"}
)

// newInputSettings returns the defaults.
func newInputSettings() setting.Values {
	s := setting.Values{ByName: map[string]setting.Value{}, Given: map[string]bool{}}
	for _, o := range inputOptions {
		s.ByName[o.name] = o.initial()
	}
	return s
}

// An inputOption is an entry of the table of options of inputs: a key of a configuration file.
type inputOption struct {
	name    string
	of      []string             // the types of inputs that have it; nil: all
	initial func() setting.Value // returns the default value
	ofFile  bool                 // it names a file with a secret or a certificate
}

// inputOptions are all options of inputs, in the order of docs/CONFIG.md.
var inputOptions = []inputOption{
	{name: "type", initial: func() setting.Value { return &inputType{setting.Choice{Of: inputTypes}} }},
	{name: "format", initial: func() setting.Value { return &setting.Choice{Value: record.Auto.String(), Of: record.Formats()} }},
	{name: "time", initial: func() setting.Value { return &setting.Choice{Value: "line", Of: timeNames} }},
	{name: "zone", initial: func() setting.Value { return new(setting.Zone) }},
	{name: "files", of: []string{"tail"}, initial: func() setting.Value { return new(setting.List) }},
	{name: "state", of: readers, initial: func() setting.Value { return new(setting.Path) }},
	{name: "from", of: readers, initial: func() setting.Value { return &setting.Choice{Of: []string{"start", "end"}} }},
	{name: "multiline", of: []string{"stdin", "tail"}, initial: func() setting.Value { return new(setting.List) }},
	{name: "partial-after", of: []string{"tail"}, initial: func() setting.Value { return new(setting.Duration) }},
	{name: "path-key", of: []string{"tail"}, initial: func() setting.Value { return new(setting.Text) }},
	{name: "max-rotated", of: []string{"tail"}, initial: func() setting.Value { return newMaxRotated() }},
	{name: "units", of: []string{"journal"}, initial: func() setting.Value { return new(setting.List) }},
	{name: "identifiers", of: []string{"journal"}, initial: func() setting.Value { return new(setting.List) }},
	{name: "directory", of: []string{"journal"}, initial: func() setting.Value { return new(setting.Path) }},
	{name: "all-fields", of: []string{"journal"}, initial: func() setting.Value { return new(setting.Toggle) }},
	{name: "listen", of: listeners, initial: func() setting.Value { return new(setting.Text) }},
	{name: "shared-key-file", of: []string{"forward"}, initial: func() setting.Value { return new(setting.Text) }, ofFile: true},
	{name: "user", of: []string{"forward"}, initial: func() setting.Value { return new(setting.Text) }},
	{name: "password-file", of: []string{"forward"}, initial: func() setting.Value { return new(setting.Text) }, ofFile: true},
	{name: "tls-cert", of: listeners, initial: func() setting.Value { return new(setting.Text) }, ofFile: true},
	{name: "tls-key", of: listeners, initial: func() setting.Value { return new(setting.Text) }, ofFile: true},
	{name: "tls-client-ca", of: listeners, initial: func() setting.Value { return new(setting.Text) }, ofFile: true},
	{name: "max-message", of: listeners, initial: func() setting.Value { return newMaxMessage() }},
	{name: "max-conns", of: listeners, initial: func() setting.Value { return setting.CountBetween(256, 1, 0) }},
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

// kindOf returns the input that the settings describe. Its error names options as flags.
func kindOf(c *setting.Values, name string, stdin *os.File) (inputKind, error) {
	rules, err := join.Parse(c.List("multiline"))
	if err != nil {
		return nil, fmt.Errorf("--multiline: %w", err)
	}
	switch kind := c.Text("type"); kind {
	case "stdin":
		return stdinInput{stdin, rules}, nil
	case "journal":
		return &journalInput{journalOptions(c)}, nil
	case "tail":
		f := &tailFlags{
			files: c.List("files"), state: c.Text("state"), from: *c.ByName["from"].(*setting.Choice), partial: setting.Duration(c.Duration("partial-after")),
			join: rules, pathKey: c.Text("path-key"), rotated: *c.ByName["max-rotated"].(*setting.Count),
		}
		if len(f.files) == 0 {
			return nil, errors.New("--files is missing: name the files to follow")
		}
		for _, path := range f.files {
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
			maxMessage: *c.ByName["max-message"].(*setting.Size), maxConns: c.Count("max-conns"), keyFile: c.Text("shared-key-file"), user: c.Text("user"),
			passwordFile: c.Text("password-file"), tlsCert: c.Text("tls-cert"), tlsKey: c.Text("tls-key"), tlsClientCA: c.Text("tls-client-ca"),
		}
		l := r.listeners[0]
		l.on, l.value, l.input = true, c.Text("listen"), name
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
		return errors.New("--tls-client-ca needs --tls-cert and --tls-key: client certificates require TLS")
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
	in := &inputConfig{name: name, Values: newInputSettings(), item: it}
	c.inputs = append(c.inputs, in)
	s := &in.Values
	if _, ok := it.fields["type"]; ok {
		it.give("type", s.ByName["type"], nil)
		it.given = nil // no other fault goes away without it
	} else if !it.has("type") && !v.Broken() {
		v.Faultf("type is missing: use %s", strings.Join(inputTypes, ", "))
	}
	kind := s.Text("type")
	for _, o := range inputOptions {
		_, ok := it.fields[o.name]
		switch {
		case !ok || o.name == "type":
		case kind != "" && o.of != nil && !slices.Contains(o.of, kind):
			it.wrong(o.name, "it is for inputs of type %s; inputs of type %s have %s", console.InWords(o.of, "and"), kind, strings.Join(inputOptionsOf(kind), ", "))
		default:
			it.give(o.name, s.ByName[o.name], nil)
		}
	}
	in.format, _ = record.ParseFormat(s.Text("format"))
	in.zone, in.times = *s.ByName["zone"].(*setting.Zone), parseTimes(s.Text("time"))
	if kind == "" {
		return
	}
	it.settle(func() (err error) {
		in.kind, err = kindOf(s, "inputs."+name, stdin)
		return err
	}, func(err error) string {
		return withoutFlags(strings.TrimPrefix(err.Error(), "inputs."+name+" "))
	}, func(err error) bool {
		v.Faultf("%s", withoutFlags(strings.TrimPrefix(err.Error(), "inputs."+name+" ")))
		return false
	})
	var files []string
	for _, o := range inputOptions {
		if o.ofFile {
			files = append(files, s.Text(o.name))
		}
	}
	in.secrets = sumOf(files...)
}
