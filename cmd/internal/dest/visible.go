package dest

import (
	"fmt"
	"slices"
	"strings"
)

// secretNames contains parts of the names of headers and parameters that hold secrets.
var secretNames = []string{"auth", "cookie", "token", "key", "secret", "password", "credential"}

// VisibleSecrets returns a warning about headers and parameters that seem to hold secrets, or "".
// It is for options on the command line, which every user of the machine can read.
func VisibleSecrets(outs ...*Spec) string {
	var found []string
	for _, c := range outs {
		for _, option := range []string{"header", "param"} {
			for _, item := range c.List(option) {
				name := item[:max(0, strings.IndexAny(item, "=:"))]
				is := func(part string) bool { return strings.Contains(strings.ToLower(name), part) }
				if text := "--" + option + " " + name; slices.ContainsFunc(secretNames, is) && !slices.Contains(found, text) {
					found = append(found, text)
				}
			}
		}
	}
	if len(found) == 0 {
		return ""
	}
	return fmt.Sprintf("%s: every user of this machine can read the value in the list of processes; use --bearer-token-file or --password-file, or forebay run with ${NAME} in its configuration", strings.Join(found, ", "))
}
