package setting

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/forebay-log/forebay/cmd/internal/conf"
)

// A param is an option with its value in the query of an address.
type param struct {
	Option *Option
	Text   string
	raw    string // parameter as it was written, with its name
}

// params contains the parameters of a query.
type params []param

// Has reports whether ps contains the named option.
func (ps params) Has(name string) bool {
	return slices.ContainsFunc(ps, func(p param) bool { return p.Option.Name == name })
}

// CutQuery splits an address at its first "?". If the address names a server and has an "@" after
// the "?", CutQuery does not split it, because the "?" may be part of a password. In an option, "@"
// is written as %40.
func CutQuery(to string) (at, query string, found bool) {
	at, query, found = strings.Cut(to, "?")
	if found && strings.Contains(query, "@") && !isPath(to) {
		return to, "", false
	}
	return at, query, found
}

// isPath reports whether an address contains a path and no server. In a path, "@" has no special
// meaning.
func isPath(address string) bool {
	scheme, _, _ := strings.Cut(address, ":")
	return slices.Contains([]string{"file", "unix", "syslog+unix", "forward+unix"}, scheme)
}

// PathIn decodes the path in an address: %3F is a question mark, and %25 is a percent sign. Other
// sequences do not change.
var PathIn = strings.NewReplacer("%3F", "?", "%3f", "?", "%25", "%").Replace

// ParseQuery parses the query part of an address, which has the form NAME=VALUE&NAME=VALUE. In a
// value, & is written as %26 and % as %25. The value of a switch may be omitted. Only options that
// filter selects are allowed.
func ParseQuery(scheme, query string, filter func(*Option) bool) (params, error) {
	var ps params
	if query == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(query, "&") {
		name, value, hasValue := strings.Cut(part, "=")
		if part == "" {
			return nil, errors.New("an option is missing between ?, & and the end: write NAME=VALUE")
		}
		o := OptionCalled(name)
		if o == nil {
			what := fmt.Sprintf("there is no option %s", name)
			if redactParam(part) == hidden {
				what = "there is no such option"
			}
			if low := strings.ToLower(name); strings.Contains(low, "tls") || strings.Contains(low, "ssl") {
				return nil, fmt.Errorf("%s: %s. %s", what, TLSHint(scheme), OptionsOf(scheme, filter))
			}
			return nil, fmt.Errorf("%s; did you mean %s? %s", what, conf.Nearest(name, OptionNames()), OptionsOf(scheme, filter))
		}
		if !o.IsFor(scheme) {
			return nil, fmt.Errorf("%s is for %s. %s", name, o.Kinds(), OptionsOf(scheme, filter))
		}
		if !filter(o) {
			return nil, fmt.Errorf("%s is for --to of forebay pipe. %s", name, OptionsOf(scheme, filter))
		}
		value, err := url.PathUnescape(value) // unlike QueryUnescape, PathUnescape does not change +
		if err != nil {
			return nil, fmt.Errorf("%s: a %% in a value is written %%25", name)
		}
		unset := o.Initial()
		_, isToggle := unset.(*Toggle)
		_, isList := unset.(*List)
		switch {
		case !hasValue && isToggle:
			value = "true"
		case !hasValue:
			return nil, fmt.Errorf("%s has no value: write %s=VALUE", name, name)
		case !isList && ps.Has(name):
			return nil, fmt.Errorf("%s is given twice", name)
		}
		ps = append(ps, param{o, value, part})
	}
	return ps, nil
}

// TLSHint returns a text that explains how to use TLS with the destination scheme.
func TLSHint(scheme string) string {
	tlsOptions := OptionCalled("tls-ca")
	for _, form := range []string{scheme, scheme + "+tls", scheme + "+https", scheme + "s", strings.Replace(scheme, "tcp", "tls", 1)} {
		if !tlsOptions.IsFor(form) {
			continue
		}
		if form == scheme {
			return scheme + ": uses TLS already; see tls-ca, tls-cert and tls-key"
		}
		return "TLS is part of the scheme, write " + form + ":"
	}
	return "it has no TLS"
}

// OptionsOf returns a text that lists the options of the destination scheme, as far as filter
// selects them. Options that apply only to some destinations precede the general ones.
func OptionsOf(scheme string, filter func(*Option) bool) string {
	var specific, general []string
	for _, o := range Options {
		switch {
		case !filter(o) || !o.IsFor(scheme):
		case o.General:
			general = append(general, o.Name)
		default:
			specific = append(specific, o.Name)
		}
	}
	names := slices.Concat(specific, general)
	if len(names) == 0 {
		return "It has no options here"
	}
	return fmt.Sprintf("Options of %s: %s", scheme, strings.Join(names, ", "))
}

// NameOf returns the name of an output: its address and the options that distinguish it from other
// outputs. The name determines the directory of the output in --spool and --crash-safe. All other
// options may change between runs.
func NameOf(at string, options params) string {
	sep := "?"
	for _, p := range options {
		if p.Option.Identifies {
			at += sep + p.raw
			sep = "&"
		}
	}
	return strings.TrimSuffix(at, ":")
}
