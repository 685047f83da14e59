package main

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/forebay-log/forebay/internal/secrets"
)

// hidden stands for a secret.
const hidden = "(secret)"

// public are the parameters of destinations that hold no secret (those of
// syslog). What any other parameter says may be one.
var public = []string{"facility", "hostname", "app", "procid", "msgid"}

// pathSchemes are followed by a path, in which @ and ? are letters like others.
var pathSchemes = []string{"unix", "syslog+unix", "forward+unix"}

// redact returns a destination fit to be shown: secrets are given in files, but
// people also write them into URLs.
func redact(to string) string {
	shown, _ := redacted(to)
	return shown
}

// redacted is redact, and returns what it hid.
func redacted(to string) (shown string, hid []string) {
	scheme, rest, found := strings.Cut(to, ":")
	if !found {
		scheme, rest = "", to
	}
	if scheme == "file" {
		return to, nil
	}
	head := to[:len(to)-len(rest)]
	rest, query, hasQuery := strings.Cut(rest, "?")
	if !slices.Contains(pathSchemes, scheme) {
		if strings.Contains(query, "@") { // a ? within a password
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
	params := strings.Split(query, "&")
	for i, p := range params {
		if name, value, ok := strings.Cut(p, "="); ok && value != "" && !slices.Contains(public, name) {
			params[i] = name + "=" + hidden
			hid = append(hid, value)
		} else if !ok && p != "" {
			params[i] = hidden
			hid = append(hid, p)
		}
	}
	return head + rest + "?" + strings.Join(params, "&"), hid
}

// redactError returns the text of an error about a destination, without what
// redact hides of it.
func redactError(err error, to string) string {
	text := err.Error()
	shown, hid := redacted(to)
	if len(hid) == 0 {
		return text
	}
	return secrets.Hide(strings.ReplaceAll(text, to, shown), hidden, hid...)
}

var (
	userInText  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`//[^\s"]*@`) })
	queryInText = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[?&][^\s"?&=]+=[^\s"&]+`) })
)

// redactText is redact for a text that may have destinations in it, such as what
// is said of a wrong command line.
func redactText(text string) string {
	text = userInText().ReplaceAllString(text, "//"+hidden+"@")
	return queryInText().ReplaceAllStringFunc(text, func(p string) string {
		name, _, _ := strings.Cut(p[1:], "=")
		if slices.Contains(public, name) {
			return p
		}
		return p[:1] + name + "=" + hidden
	})
}
