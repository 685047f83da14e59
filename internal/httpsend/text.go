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

// Printable escapes characters with a special meaning to a terminal or a log reader.
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

// RetryAfter parses a Retry-After header: seconds, limited to [MostAfter], or a date.
func RetryAfter(h string, now time.Time) time.Duration {
	if h == "" {
		return 0
	}
	if n, err := strconv.ParseUint(h, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(n, MostAfter)) * time.Second
	}
	if t, err := http.ParseTime(h); err == nil {
		return max(t.Sub(now), 0)
	}
	return 0
}

// shortValue is the length in bytes below which a value is not considered a secret, unless
// its name indicates one.
const shortValue = 4

// Secrets returns the possible secrets in headers and in the query of u.
func Secrets(headers map[string]string, u *url.URL) (all []string) {
	add := func(name, value string) {
		if len(value) >= shortValue || isDelicate(name) {
			all = append(all, value)
		}
	}
	for name, value := range headers {
		add(name, value)
		if _, word, ok := strings.Cut(value, " "); ok { // Splunk TOKEN
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

// isDelicate reports whether a header or parameter with that name contains a credential.
func isDelicate(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc([]string{"auth", "cookie", "key", "pass", "pwd", "secret", "sig", "token"}, func(part string) bool {
		return strings.Contains(name, part)
	})
}

// MostAfter is the maximum of Retry-After in seconds. The outlet waits less.
const MostAfter = 1<<31 - 1

// Basic returns the credentials of basic authentication in encoded form, or "" if there are
// none.
func Basic(user, password string) string {
	if user == "" && password == "" {
		return ""
	}
	return base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
}

// ReadToken returns the bearer token in a file. who is the prefix of the error.
func ReadToken(who, path string) (string, error) {
	text, err := secrets.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%s: cannot read bearer_token_file: %w", who, err)
	}
	t := strings.TrimSpace(text)
	if t == "" || strings.ContainsAny(t, "\r\n\x00") {
		return "", fmt.Errorf("%s: cannot use bearer_token_file %s: it is empty or has several lines", who, path)
	}
	return t, nil
}
