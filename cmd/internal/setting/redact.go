package setting

import (
	"slices"
	"strings"

	"github.com/forebay-log/forebay/internal/lazy"
	"github.com/forebay-log/forebay/internal/secrets"
)

// hidden is the text that replaces a secret.
const hidden = "(secret)"

// Redact returns an address without secrets, for messages. Secrets belong in files, but users may
// write them into an address by mistake.
func Redact(to string) string {
	shown, _ := Redacted(to)
	return shown
}

// Redacted returns the address without secrets, and the secrets.
func Redacted(to string) (shown string, hid []string) {
	_, rest, found := strings.Cut(to, ":")
	if !found {
		rest = to
	}
	head := to[:len(to)-len(rest)]
	rest, query, hasQuery := strings.Cut(rest, "?")
	if !isPath(to) {
		if strings.Contains(query, "@") { // the "?" may be part of a password, see CutQuery
			rest, query, hasQuery = to[len(head):], "", false
		}
		if at := strings.LastIndexByte(rest, '@'); at >= 0 {
			from := 0
			if strings.HasPrefix(rest, "//") {
				from = 2
			}
			user := rest[from:at]
			rest = rest[:from] + hidden + rest[at:]
			hid = append(hid, user)
			if _, password, ok := strings.Cut(user, ":"); ok {
				hid = append(hid, password)
			}
		}
		if i := strings.IndexByte(rest, '#'); i >= 0 {
			hid = append(hid, rest[i+1:])
			rest = rest[:i+1] + hidden
		}
	}
	if !hasQuery {
		return head + rest, hid
	}
	parts := strings.Split(query, "&")
	for i, part := range parts {
		if parts[i] = redactParam(part); parts[i] != part {
			if name, value, _ := strings.Cut(part, "="); parts[i] != hidden {
				hid = append(hid, value)
			} else if hid = append(hid, part); name != part {
				hid = append(hid, name)
			}
		}
	}
	return head + rest + "?" + strings.Join(parts, "&"), hid
}

// redactParam hides the value of a parameter in the query part of an address, unless the parameter
// is a switch or an option that is known to be harmless.
func redactParam(part string) string {
	name, value, _ := strings.Cut(part, "=")
	o := OptionCalled(name)
	switch {
	case part == "" || o != nil && !o.Sensitive || slices.Contains(switchValues, strings.ToLower(value)):
		return part
	case strings.Trim(value, "=") == "": // part may be a secret without a name, which may end in =
		return hidden
	}
	return name + "=" + hidden
}

// switchValues contains the valid values of a switch.
var switchValues = []string{"true", "false", "yes", "no", "on", "off"}

// RedactError returns the text of err without the secrets of an address that err may contain.
func RedactError(err error, address string) string {
	text := err.Error()
	shown, hid := Redacted(address)
	if len(hid) == 0 {
		return text
	}
	return secrets.HideOwn(strings.ReplaceAll(text, address, shown), hidden, hid...)
}

var (
	userInText  = lazy.Regexp(`//[^\s"]*@`)
	queryInText = lazy.Regexp(`[?&][^\s"?&=]+=[^\s"&]+`)
)

// RedactText hides secrets in a text that may contain addresses, such as an error about the command
// line.
func RedactText(text string) string {
	text = userInText().ReplaceAllString(text, "//"+hidden+"@")
	return queryInText().ReplaceAllStringFunc(text, func(p string) string {
		if strings.Contains(p, "="+hidden) {
			return p
		}
		part := strings.TrimRight(p[1:], ":,;.") // without punctuation after the address
		return p[:1] + redactParam(part) + p[1+len(part):]
	})
}
