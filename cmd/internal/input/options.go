package input

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/forebay-log/forebay/cmd/internal/charset"
	"github.com/forebay-log/forebay/cmd/internal/intake"
	"github.com/forebay-log/forebay/cmd/internal/join"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/cmd/internal/tail"
	"github.com/forebay-log/forebay/internal/record"
)

// Types contains the names of all types of inputs.
var (
	Types     = []string{"stdin", "tail", "journal", "forward", "loki", "syslog"}
	readers   = []string{"tail", "journal"} // types of inputs that store positions
	listeners = []string{"forward", "loki", "syslog"}
)

// NewValues returns the options of inputs with their defaults.
func NewValues() setting.Values {
	s := setting.Values{ByName: map[string]setting.Value{}, Given: map[string]bool{}}
	for _, o := range Options {
		s.ByName[o.Name] = o.initial()
	}
	return s
}

// A Charset is the value of the option charset.
type Charset struct{ *charset.Charset }

func (*Charset) Type() string { return "NAME" }
func (c *Charset) Set(text string) (err error) {
	c.Charset, err = charset.Parse(text)
	return err
}

// An Option is a key of an input in a configuration file.
type Option struct {
	Name    string
	Of      []string             // types of inputs that have this option; nil means all
	initial func() setting.Value // returns the default value
	OfFile  bool                 // the value names a file with a secret or a certificate
}

// Options lists all options of inputs in the order of docs/CONFIG.md.
var Options = []Option{
	{Name: "type", initial: func() setting.Value { return &inputType{setting.Choice{Of: Types}} }},
	{Name: "format", initial: func() setting.Value { return &setting.Choice{Value: record.Auto.String(), Of: record.Formats()} }},
	{Name: "time", initial: func() setting.Value { return &setting.Choice{Value: "line", Of: intake.TimeNames} }},
	{Name: "zone", initial: func() setting.Value { return new(setting.Zone) }},
	{Name: "files", Of: []string{"tail"}, initial: func() setting.Value { return new(setting.List) }},
	{Name: "state", Of: readers, initial: func() setting.Value { return new(setting.Path) }},
	{Name: "from", Of: readers, initial: func() setting.Value { return &setting.Choice{Of: []string{"start", "end"}} }},
	{Name: "charset", Of: []string{"stdin", "tail"}, initial: func() setting.Value { return new(Charset) }},
	{Name: "multiline", Of: []string{"stdin", "tail"}, initial: func() setting.Value { return new(setting.List) }},
	{Name: "partial-after", Of: []string{"tail"}, initial: func() setting.Value { return new(setting.Duration) }},
	{Name: "path-key", Of: []string{"tail"}, initial: func() setting.Value { return new(setting.Text) }},
	{Name: "max-rotated", Of: []string{"tail"}, initial: func() setting.Value { return NewMaxRotated() }},
	{Name: "units", Of: []string{"journal"}, initial: func() setting.Value { return new(setting.List) }},
	{Name: "identifiers", Of: []string{"journal"}, initial: func() setting.Value { return new(setting.List) }},
	{Name: "directory", Of: []string{"journal"}, initial: func() setting.Value { return new(setting.Path) }},
	{Name: "all-fields", Of: []string{"journal"}, initial: func() setting.Value { return new(setting.Toggle) }},
	{Name: "listen", Of: listeners, initial: func() setting.Value { return new(setting.Text) }},
	{Name: "shared-key-file", Of: []string{"forward"}, initial: func() setting.Value { return new(setting.Text) }, OfFile: true},
	{Name: "user", Of: []string{"forward"}, initial: func() setting.Value { return new(setting.Text) }},
	{Name: "password-file", Of: []string{"forward"}, initial: func() setting.Value { return new(setting.Text) }, OfFile: true},
	{Name: "tls-cert", Of: listeners, initial: func() setting.Value { return new(setting.Text) }, OfFile: true},
	{Name: "tls-key", Of: listeners, initial: func() setting.Value { return new(setting.Text) }, OfFile: true},
	{Name: "tls-client-ca", Of: listeners, initial: func() setting.Value { return new(setting.Text) }, OfFile: true},
	{Name: "max-message", Of: listeners, initial: func() setting.Value { return NewMaxMessage() }},
	{Name: "max-conns", Of: listeners, initial: func() setting.Value { return NewMaxConns() }},
}

// InputOptionsOf returns the names of the options of a type of input.
func InputOptionsOf(kind string) (names []string) {
	for _, o := range Options {
		if o.Of == nil || slices.Contains(o.Of, kind) {
			names = append(names, o.Name)
		}
	}
	return names
}

// KindOf returns the input that the options in c describe. Errors contain the names of options with
// a leading --.
func KindOf(c *setting.Values, name string, stdin *os.File) (Kind, error) {
	rules, err := join.Parse(c.List("multiline"))
	if err != nil {
		return nil, fmt.Errorf("--multiline: %w", err)
	}
	text := intake.Text{Charset: c.ByName["charset"].(*Charset).Charset, Join: rules}
	switch kind := c.Text("type"); kind {
	case "stdin":
		return NewStdin(stdin, text), nil
	case "journal":
		return &Journal{journalOptions(c)}, nil
	case "tail":
		f := &Tail{
			Files: c.List("files"), State: c.Text("state"), From: *c.ByName["from"].(*setting.Choice), Partial: setting.Duration(c.Duration("partial-after")),
			Text: text, PathKey: c.Text("path-key"), Rotated: *c.ByName["max-rotated"].(*setting.Count),
		}
		if len(f.Files) == 0 {
			return nil, errors.New("--files is missing: name the files to follow")
		}
		for _, path := range f.Files {
			if path == "" {
				return nil, errors.New("a path in --files is empty")
			}
			if err := tail.CheckPattern(path); err != nil {
				return nil, fmt.Errorf("%s in --files is not a valid pattern: %w", path, err)
			}
		}
		return f, nil
	default:
		if i := slices.IndexFunc(extensionInputs, func(in Extension) bool { return in.Name == kind }); i >= 0 {
			in := &extensionInput{extensionInputs[i], c}
			return in, in.check()
		}
		r := &ListenConfig{
			Listeners: []*Listener{map[string]func() *Listener{
				"forward": ForwardListener, "loki": LokiListener, "syslog": SyslogListener,
			}[kind]()},
			MaxMessage: *c.ByName["max-message"].(*setting.Size), MaxConns: *c.ByName["max-conns"].(*setting.Count), KeyFile: c.Text("shared-key-file"), User: c.Text("user"),
			PasswordFile: c.Text("password-file"), TlsCert: c.Text("tls-cert"), TlsKey: c.Text("tls-key"), TlsClientCA: c.Text("tls-client-ca"),
		}
		l := r.Listeners[0]
		l.On, l.Value, l.input = true, c.Text("listen"), name
		if l.Value == "" {
			l.Value = l.Address
		}
		return &Listen{l, r}, r.check(l)
	}
}
