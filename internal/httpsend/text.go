package httpsend

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forebay-log/forebay/internal/secrets"
)

// Printable escapes the characters of s that are not printable, because they could control a
// terminal or end a line of a log.
func Printable(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return s
	}
	var sb strings.Builder
	for _, r := range s {
		if strconv.IsPrint(r) {
			sb.WriteRune(r)
		} else {
			q := strconv.QuoteRuneToASCII(r)
			sb.WriteString(q[1 : len(q)-1])
		}
	}
	return sb.String()
}

// RetryAfter returns the delay in a Retry-After header. The header contains a date or a number of
// seconds, which is limited to [MaxRetryAfter].
func RetryAfter(h string, now time.Time) time.Duration {
	if h == "" {
		return 0
	}
	if n, err := strconv.ParseUint(h, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(n, MaxRetryAfter)) * time.Second
	}
	if t, err := http.ParseTime(h); err == nil {
		return max(t.Sub(now), 0)
	}
	return 0
}

// minSecretBytes is the minimum length in bytes of a value in a header or query that counts as a
// secret regardless of its name. Shorter values count only if the name indicates a secret, because
// hiding them would garble ordinary text.
const minSecretBytes = 4

// Secrets returns the values of headers and of the query of u that may be secret.
func Secrets(headers map[string]string, u *url.URL) (all []string) {
	add := func(name, value string) {
		if len(value) >= minSecretBytes || isSecretName(name) {
			all = append(all, value)
		}
	}
	for name, value := range headers {
		add(name, value)
		if _, word, ok := strings.Cut(value, " "); ok { // Splunk sends "Splunk TOKEN"
			add(name, word)
		}
	}
	for name, values := range u.Query() {
		for _, value := range values {
			add(name, value)
		}
	}
	return append(all, u.RawQuery)
}

// isSecretName reports whether a header or query parameter with that name contains a credential.
func isSecretName(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc([]string{"auth", "cookie", "key", "pass", "pwd", "secret", "sig", "token"}, func(part string) bool {
		return strings.Contains(name, part)
	})
}

// MaxRetryAfter is the maximum number of seconds that RetryAfter returns. Package deliver limits
// the delay further.
const MaxRetryAfter = 1<<31 - 1

// Basic returns the encoded credentials of basic authentication (RFC 7617), or "" if user and
// password are empty.
func Basic(user, password string) string {
	if user == "" && password == "" {
		return ""
	}
	return base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
}

// ReadToken returns the bearer token in the file at path, without white space around it. The text
// of the error begins with the prefix who.
func ReadToken(who, path string) (string, error) {
	text, err := secrets.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%s: cannot read bearer_token_file: %w", who, err)
	}
	t := strings.TrimSpace(text)
	if t == "" || strings.Contains(t, "\x00") {
		return "", fmt.Errorf("%s: cannot use bearer_token_file %s: it is empty or has NUL bytes", who, path)
	}
	return t, nil
}
