package lokipush

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/forebay-log/forebay/cmd/internal/listen"
)

var errNoLabels = errors.New("a stream has no labels: at least one is required")

// parseLabels parses the labels of a stream, such as {app="x", env="prod"}. It appends them to dst,
// sorted by name. If there are more than maxLabels, it returns an error.
func parseLabels(dst []listen.Label, text string, maxLabels int) ([]listen.Label, error) {
	invalid := func(why string) ([]listen.Label, error) {
		return dst, fmt.Errorf("the labels %s cannot be read: %s", listen.Quote([]byte(text)), why)
	}
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), "{")
	if !ok {
		if text == "" {
			return dst, errNoLabels
		}
		return invalid("they do not begin with {")
	}
	for rest = strings.TrimLeft(rest, " "); !strings.HasPrefix(rest, "}"); {
		name, value, found := strings.Cut(rest, "=")
		name = strings.TrimSpace(name)
		switch {
		case !found:
			return invalid("= or } is missing")
		case !isValidName(name):
			return invalid("the name " + listen.Quote([]byte(name)) + " is invalid: use letters, digits and _")
		case len(dst) == maxLabels:
			return dst, tooMany("a stream", "labels", maxLabels)
		}
		value = strings.TrimLeft(value, " ")
		quoted, err := strconv.QuotedPrefix(value)
		if err != nil || quoted[0] == '\'' {
			return invalid("the value of " + name + " is not in quotation marks")
		}
		plain, err := strconv.Unquote(quoted)
		if err != nil {
			return invalid("the value of " + name + " is not in quotation marks")
		}
		dst = append(dst, listen.Label{Name: name, Value: plain})
		rest = strings.TrimLeft(value[len(quoted):], " ")
		if next, comma := strings.CutPrefix(rest, ","); comma {
			rest = strings.TrimLeft(next, " ")
		} else if !strings.HasPrefix(rest, "}") {
			return invalid("after the value of " + name + " a comma or } is missing")
		}
	}
	if strings.TrimSpace(rest) != "}" {
		return invalid("text follows }")
	}
	return sortLabels(dst)
}

// sortLabels sorts labels by name. If there are none, or two have the same name, it returns an
// error.
func sortLabels(labels []listen.Label) ([]listen.Label, error) {
	if len(labels) == 0 {
		return labels, errNoLabels
	}
	slices.SortFunc(labels, func(a, b listen.Label) int { return strings.Compare(a.Name, b.Name) })
	for i := range labels[1:] {
		if labels[i].Name == labels[i+1].Name {
			return labels, fmt.Errorf("a stream has the label %s twice", listen.Quote([]byte(labels[i].Name)))
		}
	}
	return labels, nil
}

// isValidName reports whether name is a valid label name.
func isValidName(name string) bool {
	for i := range len(name) {
		c := name[i]
		if c != '_' && (c|0x20 < 'a' || c|0x20 > 'z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}
