package dest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/setting"
)

// All returns all destinations, in the order of --help.
func All() []Destination {
	return slices.Concat([]Destination{
		fileDest{},
		stdioDest{name: "stdout", what: "standard output"},
		stdioDest{name: "stderr", what: "standard error"},
	}, netDests(), forwardDests(), LokiDests(), otlpDests(), HTTPDests(), extensionDests)
}

// OpenAt opens the destination of c. flag is the name of the flag with the address, for errors.
func OpenAt(dests []Destination, flag string, c *Spec) (*Target, error) {
	d, at, _, err := Locate(dests, flag, c.To)
	if err != nil {
		return nil, err
	}
	t, err := openIn(d, at[len(d.Scheme())+1:], c)
	if err != nil {
		text := fmt.Errorf("%s %s: %s", flag, setting.Redact(c.Name), strings.TrimPrefix(setting.RedactError(err, c.To), "file: "))
		if isOptionError(d, c) {
			return nil, exit.Usage(text)
		}
		return nil, text
	}
	return t, nil
}

// openIn opens the destination d. Its errors contain names of flags.
func openIn(d Destination, rest string, c *Spec) (*Target, error) {
	t, err := d.Open(rest, c)
	if err != nil {
		return nil, withFlagNames(err)
	}
	return t, nil
}

// Locate finds the destination for an address, and splits off the query part of the address. flag
// is the name of the flag that contains the address, for errors.
func Locate(dests []Destination, flag, address string) (d Destination, at, query string, err error) {
	scheme, _, found := strings.Cut(address, ":")
	for _, d := range dests {
		if found && scheme == d.Scheme() {
			at, query, _ = setting.CutQuery(address)
			return d, at, query, nil
		}
	}
	address = setting.Redact(address)
	var why string
	switch {
	case address == "":
		why = "it is empty; for a file, write file:app.log"
	case address == "-":
		why = "for standard output, write stdout:"
	case found && (len(scheme) == 1 || strings.ContainsAny(scheme, `/\.`)), !found && strings.ContainsAny(address, `/\.`):
		why = fmt.Sprintf("for a file, write file:%s", address)
	case !found:
		for _, d := range dests {
			if address == d.Scheme() {
				form, _ := d.Usage()
				why = fmt.Sprintf("write %s, with the colon", form)
			}
		}
		if why == "" {
			why = fmt.Sprintf("it has no scheme; for a file, write file:%s", address)
		}
	default:
		why = cmp.Or(setting.UnsupportedHint(scheme), httpServerHint(scheme))
	}
	if why == "" { // there is no advice, so list all destinations
		why = fmt.Sprintf("there is no destination %q\nDestinations are:\n%s", scheme, strings.TrimRight(UsageOf(dests), "\n"))
	}
	return nil, "", "", errors.New(flag + " " + quoteEmpty(address) + ": " + why)
}

func quoteEmpty(s string) string {
	if s == "" {
		return `""`
	}
	return s
}

// UsageOf lists the destinations, one per line.
func UsageOf(dests []Destination) string {
	width := 0
	for _, d := range dests {
		form, _ := d.Usage()
		width = max(width, len(form))
	}
	var sb strings.Builder
	for _, d := range dests {
		form, what := d.Usage()
		fmt.Fprintf(&sb, "  %-*s  %s\n", width, form, what)
	}
	return sb.String()
}
