package dest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/forebay-log/forebay/cmd/internal/setting"
)

// secretNames contains parts of the names of headers and parameters that hold secrets.
var secretNames = []string{"auth", "cookie", "token", "key", "secret", "password", "credential"}

// VisibleSecrets returns warnings about secrets that every user of the machine can read: values of
// headers and parameters on the command line, and files.
func VisibleSecrets(outs ...*Spec) (warnings []string) {
	var found []string
	for _, c := range outs {
		c.secretPairs(func(option, name, _ string) {
			if text := "--" + option + " " + name; !slices.Contains(found, text) {
				found = append(found, text)
			}
		})
	}
	if len(found) > 0 {
		warnings = append(warnings, fmt.Sprintf("%s: every user of this machine can read the value in the list of processes; use --bearer-token-file or --password-file, or forebay run with ${NAME} in its configuration", strings.Join(found, ", ")))
	}
	for _, c := range outs {
		for _, text := range c.openFiles("--") {
			if !slices.Contains(warnings, text) {
				warnings = append(warnings, text)
			}
		}
	}
	return warnings
}

// VisibleIn returns warnings about secrets of the output c that every user of the machine can read:
// values in the configuration file at path, whose content is data, and files that it names. A value
// that is not in data is the value of an environment variable.
func (c *Spec) VisibleIn(path string, data []byte) (warnings []string) {
	place := "outputs." + c.Name + "."
	if setting.IsOpen(path) {
		c.secretPairs(func(option, name, value string) {
			if value != "" && bytes.Contains(data, []byte(value)) {
				warnings = append(warnings, fmt.Sprintf("%s%s.%s: every user of this machine can read the value in %s; write ${NAME} for an environment variable, or run chmod 600 %s", place, option, name, path, path))
			}
		})
	}
	return append(warnings, c.openFiles(place)...)
}

// secretPairs calls do for each header and parameter that seems to hold a secret.
func (c *Spec) secretPairs(do func(option, name, value string)) {
	for _, option := range []string{"header", "param"} {
		for _, item := range c.List(option) {
			i := max(0, strings.IndexAny(item, "=:"))
			is := func(part string) bool { return strings.Contains(strings.ToLower(item[:i]), part) }
			if slices.ContainsFunc(secretNames, is) {
				do(option, item[:i], strings.TrimSpace(item[i+1:]))
			}
		}
	}
}

// openFiles returns a warning for each file with a secret of c that every user of the machine can
// read or change. prefix precedes the name of the option.
func (c *Spec) openFiles(prefix string) (warnings []string) {
	var files []setting.SecretFile
	for _, name := range []string{"shared-key-file", "password-file", "bearer-token-file", "tls-key"} {
		files = append(files, setting.SecretFile{Name: name, Path: c.Text(name)})
	}
	return setting.OpenFiles(prefix, files...)
}
