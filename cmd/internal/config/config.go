package config

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/conf"
	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/input"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/lazy"
	"github.com/forebay-log/forebay/internal/vfs"
)

// Parse parses data, the content of a configuration file. The function env looks up environment
// variables. Parse returns all faults. The Pipeline is usable only if there are no faults.
func Parse(data []byte, env func(string) (string, bool), stdin *os.File) (*Pipeline, []conf.Fault) {
	f, root := conf.Parse(data, env)
	c := &Pipeline{
		Name: "forebay", Dests: dest.All(), Options: dest.NewGiven(),
		MaxRecord:    *setting.SizeBetween(layout.DefaultMaxRecord, 1, MaxRecordFlag),
		DrainTimeout: setting.Duration(30 * time.Second),
		Named:        true,
		Fallbacks:    map[string]*dest.Spec{},
		items:        map[any]*item{},
	}
	c.Ops.Summary = setting.Choice{Value: summaryText, Of: []string{summaryText, SummaryJSON}}
	if !root.Exists() && len(f.Faults()) > 0 {
		faults := f.Faults()
		last := &faults[len(faults)-1]
		last.Err = fmt.Errorf("%w; the rest of the file was not checked", last.Err)
		return nil, faults
	}
	if c.partial = f.Unread() > 0; c.partial {
		faults := f.Faults()
		last := &faults[len(faults)-1]
		last.Err = fmt.Errorf("%w; the rest of the file, from line %d on, was not checked", last.Err, f.Unread())
	}
	it := readItem(root, ConfigKeys())
	scalars := c.scalars()
	for _, name := range slices.Sorted(maps.Keys(scalars)) {
		if _, ok := it.fields[name]; ok {
			it.readSetting(name, scalars[name], nil)
		}
	}
	it.findFaults(func() error {
		if c.partial { // a required option may be in the part of the file that was not read
			return nil
		}
		if err := c.Ops.check(); err != nil {
			return err
		}
		return c.Ops.checkControlPath()
	}, func(err error) string { return WithoutFlags(err.Error()) }, func(error) bool { return false })
	section := func(name, example string) conf.Node {
		v, ok := it.fields[name]
		switch {
		case c.partial:
		case ok && v.Empty():
			v.Faultf("it is empty: name at least one")
		case !ok && !it.has(name) && !root.WrongType():
			root.Faultf("%s is missing: name at least one, such as %s: {%s}", name, name, example)
		}
		return v
	}
	inputs, outputs := section("inputs", "app: {type: stdin}"), section("outputs", "out: {to: \"stdout:\"}")
	inputs.Fields(nil, func(name string, v conf.Node) { c.addInput(name, v, stdin) })
	c.addRules(it.fields["transforms"])
	outputs.Fields(nil, func(name string, v conf.Node) { c.addOutput(name, v) })
	c.checkConflicts()
	for _, in := range c.Inputs {
		in.At = c.items[in].positions()
	}
	for _, out := range c.Outs {
		out.At = c.items[out].positions()
	}
	c.items = nil
	return c, f.Faults()
}

// scalars returns the settings at the top level of the file, by their keys.
func (c *Pipeline) scalars() map[string]setting.Value {
	return map[string]setting.Value{
		"name": (*setting.Text)(&c.Name), "max-record": &c.MaxRecord, "drain-timeout": &c.DrainTimeout, "fail-on-drop": (*setting.Toggle)(&c.FailOnDrop),
		"metrics": (*setting.Text)(&c.Ops.Metrics), "control": (*setting.Text)(&c.Ops.Control), "pprof": (*setting.Toggle)(&c.Ops.Pprof), "summary": &c.Ops.Summary,
	}
}

// ConfigKeys returns the top-level keys of a configuration file.
func ConfigKeys() []string {
	return append(slices.Sorted(maps.Keys(new(Pipeline).scalars())), "inputs", "transforms", "outputs")
}

// validName matches the names that inputs and outputs may have. The names are used in messages,
// metrics and directory names.
var validName = lazy.Regexp(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

func checkName(name string, v conf.Node) {
	if !validName().MatchString(name) {
		v.Faultf("%.70q is not a valid name: use up to 63 letters, digits, _, . and -", name)
	}
}

// flagIn matches the dashes before the name of a flag in a text.
var flagIn = lazy.Regexp(`(^|[\s(])--([a-z])`)

// WithoutFlags replaces names of flags in text by names of keys: "--level" becomes "level".
func WithoutFlags(text string) string { return flagIn().ReplaceAllString(text, "$1$2") }

// SameInput reports whether a and b describe the same input. Options that only affect how lines are
// parsed may differ.
func SameInput(a, b *input.Config) bool {
	x, y := a.Values.Clone(), b.Values.Clone()
	for _, s := range []setting.Values{x, y} {
		for _, name := range []string{"format", "time", "zone"} {
			delete(s.ByName, name)
			delete(s.Given, name)
		}
	}
	return a.Name == b.Name && a.Secrets == b.Secrets && reflect.DeepEqual(x, y)
}

// checksumOf returns a checksum of the contents of files, such as keys and certificates. If a file
// changes, the configuration counts as changed. A file that cannot be read is ignored, because
// opening the input or output reports the error.
func checksumOf(files ...string) [sha256.Size]byte {
	var all []byte
	for _, file := range files {
		text, _ := os.ReadFile(file)
		sum := sha256.Sum256(text)
		all = append(all, sum[:]...)
	}
	return sha256.Sum256(all)
}

// SameReading reports whether the inputs a and b parse lines in the same way.
func SameReading(a, b *input.Config) bool { return reflect.DeepEqual(a.Reading, b.Reading) }

// SameRoute reports whether the outputs a and b select the same records, apart from their levels.
func SameRoute(a, b *dest.Spec) bool {
	return reflect.DeepEqual(a.Route, b.Route)
}

// SameOutput reports whether a and b describe the same output. The conditions that select its
// records may differ.
func SameOutput(a, b *dest.Spec) bool {
	x, y := *a, *b
	for _, c := range []*dest.Spec{&x, &y} {
		c.Route, c.OnEvent, c.At, c.Values = dest.Route{}, nil, nil, c.Clone()
		delete(c.ByName, "level")
		delete(c.Given, "level")
	}
	return reflect.DeepEqual(x, y)
}

// SameDestination reports whether a and b are the same output with two names: all records of one
// would also arrive by the other. Files are compared elsewhere, because a file has several paths.
func SameDestination(a, b *dest.Spec) bool {
	x, y := *a, *b
	for _, c := range []*dest.Spec{&x, &y} {
		c.To, c.Name, c.OnEvent, c.At = WithPort(c.To), "", nil, nil
	}
	return !strings.HasPrefix(a.To, "file:") && reflect.DeepEqual(x, y)
}

// Load reads a configuration file. The error has one line for each fault.
func Load(name string, stdin *os.File) (*Pipeline, []byte, error) {
	data, err := ReadLimited(name)
	if err != nil {
		return nil, nil, exit.Config(err)
	}
	c, faults := Parse(data, os.LookupEnv, stdin)
	if len(faults) == 0 {
		return c, data, nil
	}
	if program := configOf(data); program != "" {
		return nil, data, exit.Config(fmt.Errorf("%s: it is a configuration of %s, not of forebay; see docs/MIGRATING-%s.md",
			name, program, strings.ToLower(strings.ReplaceAll(program, " ", "-"))))
	}
	var lines FaultLines
	for _, f := range faults {
		sep := ":"
		if f.Line == 0 {
			sep = ": "
		}
		lines = append(lines, name+sep+f.Error())
	}
	return nil, data, exit.Config(lines)
}

// FaultLines is an error with one line for each fault of a configuration file.
type FaultLines []string

func (l FaultLines) Error() string { return strings.Join(l, "\n") }

// otherConfigs contains patterns for the configuration files of other programs. Each program has a
// migration page in docs.
var otherConfigs = []struct {
	program string
	is      func() *regexp.Regexp
}{
	{"promtail", lazy.Regexp(`(?m)^scrape_configs[ \t]*:`)},
	{"Fluent Bit", lazy.Regexp(`(?mi)^[ \t]*\[(SERVICE|INPUT|FILTER|OUTPUT|PARSER|MULTILINE_PARSER)\][ \t]*\r?$|^pipeline[ \t]*:`)},
}

// configOf recognizes the configuration files of other programs. It returns the name of the program
// that reads a file with the content data, or "".
func configOf(data []byte) string {
	for _, o := range otherConfigs {
		if o.is().Match(data) {
			return o.program
		}
	}
	return ""
}

// ReadLimited returns the first conf.MaxBytes+1 bytes of a file. conf.Parse rejects more than
// conf.MaxBytes bytes.
func ReadLimited(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%s: there is no such file; forebay init writes one", name)
		}
		return nil, errors.New(console.ReadRemedy(fmt.Sprintf("%s: %s", name, vfs.Cause(err))))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, conf.MaxBytes+1))
	if err != nil {
		return nil, errors.New(console.ReadRemedy(fmt.Sprintf("%s: %s", name, vfs.Cause(err))))
	}
	return data, nil
}
