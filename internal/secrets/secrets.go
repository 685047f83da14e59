// Package secrets hides secrets in texts that come from outside, such as errors of the
// network and answers of servers.
package secrets

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"unicode"
)

// longWord is the number of letters above which a secret is taken for no word.
const longWord = 16

// Hide returns text with mark in place of the secrets, and of what they are as part of a
// URL. A secret that may be part of a sentence, a word or something of up to three bytes,
// is hidden only where it stands as in a URL or in quotation marks: the password "p" is
// part of many words, and a gap in one would tell it. All others are hidden everywhere.
// Empty ones are not looked for.
func Hide(text, mark string, secrets ...string) string {
	if text == "" {
		return text
	}
	var all []string
	for _, s := range secrets {
		all = append(all, s)
		for _, form := range []func(string) (string, error){url.QueryUnescape, url.PathUnescape, escaped(url.QueryEscape), escaped(url.PathEscape)} {
			if other, err := form(s); err == nil && !slices.Contains(all, other) {
				all = append(all, other)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b string) int { return len(b) - len(a) })
	for _, s := range all {
		text = hide(text, mark, s)
	}
	return text
}

func escaped(f func(string) string) func(string) (string, error) {
	return func(s string) (string, error) { return f(s), nil }
}

func hide(text, mark, secret string) string {
	switch {
	case secret == "":
		return text
	case len(secret) > 3 && !isWord(secret):
		return strings.ReplaceAll(text, secret, mark)
	}
	for from := 0; ; {
		i := strings.Index(text[from:], secret)
		if i < 0 {
			return text
		}
		i += from
		end := i + len(secret)
		begins := i > 0 && strings.IndexByte(`:/=#?&"`, text[i-1]) >= 0
		ends := end == len(text) || strings.IndexByte(`@&#"/?:,; `, text[end]) >= 0
		if from = i + 1; begins && ends {
			text = text[:i] + mark + text[end:]
			from = i + len(mark)
		}
	}
}

// isWord reports whether s may be a word of a sentence.
func isWord(s string) bool {
	small := false // a letter that is no capital came before
	for _, r := range s {
		if !unicode.IsLetter(r) || small && unicode.IsUpper(r) {
			return false
		}
		small = small || !unicode.IsUpper(r)
	}
	return len(s) <= longWord
}

// HideIn returns err with [Hide] applied to what it says; err itself, if that says no secret.
// errors.Is still finds what err wraps; nothing leads back to the text of err.
func HideIn(err error, mark string, secrets ...string) error {
	text := Hide(err.Error(), mark, secrets...)
	if text == err.Error() {
		return err
	}
	return &hidden{err, text}
}

// A hidden error says less than the one it stands for.
type hidden struct {
	err  error
	text string
}

func (h *hidden) Error() string        { return h.text }
func (h *hidden) Is(target error) bool { return errors.Is(h.err, target) }
