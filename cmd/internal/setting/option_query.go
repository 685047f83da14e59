package setting

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/forebay-log/forebay/cmd/internal/conf"
)

// A param is an option in the query of a destination.
type param struct {
	Option *Option
	Text   string
	raw    string // the parameter as written, including its name
}

type params []param

func (ps params) Has(name string) bool {
	return slices.ContainsFunc(ps, func(p param) bool { return p.Option.Name == name })
}

// CutQuery splits a destination at its first "?". If a destination with a server contains an "@"
// after the "?", it is not split, because the "?" may be part of a password, which is not allowed
// there. In an option, "@" is written %40.
func CutQuery(to string) (at, query string, found bool) {
	at, query, found = strings.Cut(to, "?")
	if found && strings.Contains(query, "@") && !isPath(to) {
		return to, "", false
	}
	return at, query, found
}

// isPath reports whether the scheme of a destination is followed by a path, where @ is an ordinary
// character.
func isPath(to string) bool {
	scheme, _, _ := strings.Cut(to, ":")
	return slices.Contains([]string{"file", "unix", "syslog+unix", "forward+unix"}, scheme)
}

// PathIn decodes the path in a destination: %3F is a question mark and %25 a percent sign. Other
// sequences remain unchanged.
var PathIn = strings.NewReplacer("%3F", "?", "%3f", "?", "%25", "%").Replace

// ParseQuery parses the options after the "?" of a destination, written as NAME=VALUE and separated
// by &. In a value, & is written %26 and % is written %25. A flag that needs no value on the
// command line needs none here. some selects the allowed options.
func ParseQuery(scheme, query string, some func(*Option) bool) (params, error) {
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
				return nil, fmt.Errorf("%s: %s. %s", what, TLSHint(scheme), OptionsOf(scheme, some))
			}
			return nil, fmt.Errorf("%s; did you mean %s? %s", what, conf.Nearest(name, OptionNames()), OptionsOf(scheme, some))
		}
		if !o.IsFor(scheme) {
			return nil, fmt.Errorf("%s is for %s. %s", name, o.Kinds(), OptionsOf(scheme, some))
		}
		if !some(o) {
			return nil, fmt.Errorf("%s is for --to of forebay pipe. %s", name, OptionsOf(scheme, some))
		}
		value, err := url.PathUnescape(value) // unlike QueryUnescape, it keeps +
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

// TLSHint explains how TLS is enabled for a kind of destination.
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

// OptionsOf lists the options of a kind of destination for a message. Options that only this kind
// has are first.
func OptionsOf(scheme string, some func(*Option) bool) string {
	var own, all []string
	for _, o := range Options {
		switch {
		case !some(o) || !o.IsFor(scheme):
		case o.General:
			all = append(all, o.Name)
		default:
			own = append(own, o.Name)
		}
	}
	names := slices.Concat(own, all)
	if len(names) == 0 {
		return "It has no options here"
	}
	return fmt.Sprintf("Options of %s: %s", scheme, strings.Join(names, ", "))
}

// NameOf returns the name of an output: its address and the options that identify it. The
// directories in --spool and --crash-safe have this name, so other options may change between runs.
func NameOf(at string, own params) string {
	sep := "?"
	for _, p := range own {
		if p.Option.Identifies {
			at += sep + p.raw
			sep = "&"
		}
	}
	return strings.TrimSuffix(at, ":")
}
