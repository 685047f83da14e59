package main

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
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
func redacted(to string) (shown string, secrets []string) {
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
			secrets = append(secrets, user)
			if _, password, ok := strings.Cut(user, ":"); ok {
				secrets = append(secrets, password)
			}
		}
		if i := strings.IndexByte(rest, '#'); i >= 0 {
			secrets = append(secrets, rest[i+1:])
			rest = rest[:i+1] + hidden
		}
	}
	if !hasQuery {
		return head + rest, secrets
	}
	params := strings.Split(query, "&")
	for i, p := range params {
		if name, value, ok := strings.Cut(p, "="); ok && value != "" && !slices.Contains(public, name) {
			params[i] = name + "=" + hidden
			secrets = append(secrets, value)
		} else if !ok && p != "" {
			params[i] = hidden
			secrets = append(secrets, p)
		}
	}
	return head + rest + "?" + strings.Join(params, "&"), secrets
}

// redactError returns the text of an error about a destination, without what
// redact hides of it.
func redactError(err error, to string) string {
	text := err.Error()
	shown, secrets := redacted(to)
	if len(secrets) == 0 {
		return text
	}
	text = strings.ReplaceAll(text, to, shown)
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	for _, s := range secrets {
		if s == "" {
			continue
		}
		text = strings.ReplaceAll(text, s, hidden)
		if plain, err := url.QueryUnescape(s); err == nil && plain != "" {
			text = strings.ReplaceAll(text, plain, hidden)
		}
	}
	return text
}

var (
	userInText  = regexp.MustCompile(`//[^\s"]*@`)
	queryInText = regexp.MustCompile(`[?&][^\s"?&=]+=[^\s"&]+`)
)

// redactText is redact for a text that may have destinations in it, such as what
// is said of a wrong command line.
func redactText(text string) string {
	text = userInText.ReplaceAllString(text, "//"+hidden+"@")
	return queryInText.ReplaceAllStringFunc(text, func(p string) string {
		name, _, _ := strings.Cut(p[1:], "=")
		if slices.Contains(public, name) {
			return p
		}
		return p[:1] + name + "=" + hidden
	})
}
