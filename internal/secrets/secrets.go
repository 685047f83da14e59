// Package secrets hides credentials in texts that may contain them, such as network errors and
// responses of servers.
package secrets

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"html"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// longWord is a length in bytes. A secret of this length or more is not treated as a word of a
// sentence.
const longWord = 16

// Hide replaces every secret in text, which a server may have written, with mark. It also finds
// escaped forms. If a secret is a word or has at most three bytes, Hide replaces the whole word
// that contains it, because a gap would reveal the secret. Empty secrets are ignored.
func Hide(text, mark string, secrets ...string) string {
	return replace(text, mark, secrets, wordAround)
}

// HideOwn replaces every secret in a text of this process or its system, such as "dial tcp:
// connection refused". Readers know these texts, so a gap would reveal a secret that is one of
// their words. Therefore a secret that may be a word is hidden only where it is delimited as in a
// URL or in quotation marks.
func HideOwn(text, mark string, secrets ...string) string {
	return replace(text, mark, secrets, delimited)
}

// HideIn returns err with its secrets replaced with mark, or err itself if it contains none. For a
// system error it uses [HideOwn]. Any other error may contain text of a server, so HideIn uses
// [Hide]. errors.Is and errors.As still find the errors that err wraps; errors.Unwrap does not.
func HideIn(err error, mark string, secrets ...string) error {
	hide := Hide
	if isOwn(err) {
		hide = HideOwn
	}
	text := hide(err.Error(), mark, secrets...)
	if text == err.Error() {
		return err
	}
	return &hidden{err, text}
}

// isOwn reports whether err ends in the text of a system error. Such an error contains no text of a
// server.
func isOwn(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && strings.HasSuffix(err.Error(), op.Error()) {
		return true
	}
	for _, own := range []error{context.DeadlineExceeded, context.Canceled, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, own) && strings.HasSuffix(err.Error(), own.Error()) {
			return true
		}
	}
	return false
}

// replace replaces the secrets in text with mark. For a secret that may be a word, it replaces the
// range returned by the function around.
func replace(text, mark string, secrets []string, around func(text string, from, to int) (int, int)) string {
	covered := make([]bool, len(text)) // reports for each byte of text whether it must be replaced
	found := false
	plain, source := percentDecoded(text)
	cover := func(in, secret string, at func(int) int) {
		for i := 0; ; i++ {
			n := strings.Index(in[i:], secret)
			if n < 0 {
				return
			}
			i += n
			from, to := at(i), at(i+len(secret))
			if len(secret) <= 3 || isWord(secret) {
				from, to = around(text, from, to)
			}
			for k := from; k < to; k++ {
				covered[k], found = true, true
			}
		}
	}
	for _, s := range forms(secrets) {
		cover(text, s, func(i int) int { return i })
		if source != nil {
			cover(plain, s, func(i int) int { return source[i] })
		}
	}
	if !found {
		return text
	}
	var out strings.Builder
	for i := range covered {
		switch {
		case !covered[i]:
			out.WriteByte(text[i])
		case i == 0 || !covered[i-1]:
			out.WriteString(mark)
		}
	}
	return out.String()
}

// percentDecoded returns text with each %XX replaced by the byte it denotes. source contains the
// offset in text of each byte and of the end; it is nil if text has no %XX. Programs differ in the
// characters that they escape, so a secret in a URL has many forms.
func percentDecoded(text string) (plain string, source []int) {
	if strings.IndexByte(text, '%') < 0 {
		return text, nil
	}
	var b []byte
	for i := 0; i < len(text); {
		c, n := text[i], 1
		if c == '%' && i+3 <= len(text) {
			if v, err := hex.DecodeString(text[i+1 : i+3]); err == nil {
				c, n = v[0], 3
			}
		}
		b, source = append(b, c), append(source, i)
		i += n
	}
	return string(b), append(source, len(text))
}

// forms returns the secrets, and their encoded forms in a URL, in JSON and in HTML.
func forms(secrets []string) (all []string) {
	add := func(s string, err error) {
		if s != "" && err == nil && !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	for _, s := range secrets {
		add(s, nil)
		add(url.QueryUnescape(s))
		add(url.PathUnescape(s))
		add(url.QueryEscape(s), nil)
		add(strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s), nil) // JSON in which <, > and & are not escaped
		add(html.EscapeString(s), nil)
		js, err := json.Marshal(s)
		add(strings.TrimSuffix(strings.TrimPrefix(string(js), `"`), `"`), err)
	}
	return all
}

// wordAround returns the range text[from:to], extended by the letters and digits around it.
func wordAround(text string, from, to int) (int, int) {
	for from > 0 {
		r, n := utf8.DecodeLastRuneInString(text[:from])
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			break
		}
		from -= n
	}
	for to < len(text) {
		r, n := utf8.DecodeRuneInString(text[to:])
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			break
		}
		to += n
	}
	return from, to
}

// delimited returns the range text[from:to] if it is delimited as in a URL or in quotation marks.
// Otherwise it returns an empty range.
func delimited(text string, from, to int) (int, int) {
	if from > 0 && strings.IndexByte(`:/=#?&"`, text[from-1]) >= 0 && (to == len(text) || strings.IndexByte(`@&#"/?:,; `, text[to]) >= 0) {
		return from, to
	}
	return from, from
}

// isWord reports whether s may be a word of a sentence.
func isWord(s string) bool {
	small := false // the text before r contains a lower-case letter
	for _, r := range s {
		if !unicode.IsLetter(r) || small && unicode.IsUpper(r) {
			return false
		}
		small = small || !unicode.IsUpper(r)
	}
	return len(s) <= longWord
}

// A hidden error wraps err and has its text without the secrets.
type hidden struct {
	err  error
	text string
}

func (h *hidden) Error() string        { return h.text }
func (h *hidden) Is(target error) bool { return errors.Is(h.err, target) }
func (h *hidden) As(target any) bool   { return errors.As(h.err, target) }
