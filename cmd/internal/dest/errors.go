package dest

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/internal/lazy"
)

// A checker is a Destination whose Open may create files. Check returns the errors of Open without
// creating files.
type checker interface {
	Check(rest string, c *Spec) error
}

// TryDestination returns an error if c cannot be opened. It leaves no files or connections.
func TryDestination(d Destination, c *Spec) error {
	rest := c.To[len(d.Scheme())+1:]
	if d, ok := d.(checker); ok {
		return d.Check(rest, c)
	}
	t, err := openIn(d, rest, c)
	if err == nil {
		t.Close()
	}
	return err
}

// FirstLine returns the first line of an error. Errors of drivers have one line for each fault.
func FirstLine(err error) error {
	if err == nil {
		return nil
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return errors.New(line)
}

// fieldNames contains patterns for the field names in errors of drivers. text is the name of the
// flag that replaces the field name.
var fieldNames = []struct {
	is   func() *regexp.Regexp
	text string
}{
	{lazy.Regexp(`^label_attrs: the name "" has 0 bytes.*`), "--label-from: a name is empty"},
	{lazy.Regexp(`^label_attrs: `), "--label-from: "},
	{lazy.Regexp(`^metadata_attrs: `), "--metadata: "},
	{lazy.Regexp(`^labels: `), "--label: "},
	{lazy.Regexp(`^(tenant|resource): `), "--$1: "},
	{lazy.Regexp(`^bearer_token: `), "--bearer-token-file: "},
	{lazy.Regexp(`^authentication: `), ""},
	{lazy.Regexp(`\busername with password\b`), "--user with --password-file"},
	{lazy.Regexp(`\bthe header Authorization\b`), "--header Authorization"},
	{lazy.Regexp(`\bbearer_token_file\b`), "--bearer-token-file"},
	{lazy.Regexp(`\btls: cert_file and key_file\b`), "--tls-cert and --tls-key"},
	{lazy.Regexp(`\btls\.cert_file and key_file\b`), "--tls-cert and --tls-key"},
	{lazy.Regexp(`\btls\.ca_file\b`), "--tls-ca"},
	{lazy.Regexp(`\bmax_[a-z_]+ \((\d+)\)`), "$1"},
}

// withFlagNames replaces the field names in an error of a driver by names of flags.
func withFlagNames(err error) error {
	lines := strings.Split(err.Error(), "\n")
	for i := range lines {
		for _, n := range fieldNames {
			lines[i] = n.is().ReplaceAllString(lines[i], n.text)
		}
	}
	text := strings.Join(lines, "\n")
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}

// isOptionError reports whether d cannot be opened because of an option that is invalid or
// conflicts with another option. It returns false if the address is invalid or a file cannot be
// read.
func isOptionError(d Destination, c *Spec) bool {
	err := FirstLine(TryDestination(d, c))
	if err == nil || isSame(err, FirstLine(TryDestination(d, c.without(func(*setting.Option) bool { return true })))) {
		return false
	}
	ofFile := func(o *setting.Option) bool { return o.OfFile }
	return isSame(err, FirstLine(TryDestination(d, c.without(ofFile)))) || !c.concernsFile(err.Error())
}

func isSame(a, b error) bool { return b != nil && a.Error() == b.Error() }

// without returns a copy of c in which the options that filter selects have their defaults.
func (c *Spec) without(filter func(*setting.Option) bool) *Spec {
	n := *c
	n.Values = c.Clone()
	for _, o := range setting.Options {
		if c.Given[o.Name] && filter(o) {
			delete(n.Given, o.Name)
			n.ByName[o.Name] = o.Initial()
		}
	}
	return &n
}

// concernsFile reports whether the error text concerns a file that an option names.
func (c *Spec) concernsFile(text string) bool {
	words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t:,;\"", r) })
	return strings.Contains(text, "cannot ") || slices.ContainsFunc(setting.Options, func(o *setting.Option) bool {
		if !o.OfFile || !c.Given[o.Name] {
			return false
		}
		name := c.Text(o.Name)
		return slices.Contains(words, name) || strings.ContainsAny(name, " :,;\"") && strings.Contains(text, name)
	})
}
