package jsontext

import (
	"unicode"
	"unicode/utf8"
)

// LogfmtKey returns key, or a part of a key, in the form that logfmt uses.
func LogfmtKey(key string) string {
	for i := range len(key) {
		if c := key[i]; c >= utf8.RuneSelf || classes[c] != classPlain {
			return string(AppendName(nil, key))
		}
	}
	if key == "" {
		return "_"
	}
	return key
}

// The text formats, logfmt and console, escape keys and values in the same way. Characters that
// could end a line, move the cursor, change colors or reverse the text direction are always
// escaped.

// byteClass determines how the text formats write an ASCII byte.
type byteClass uint8

const (
	classPlain  byteClass = iota
	classQuote            // a value with this byte is quoted
	classEscape           // the byte is escaped, and a value with it is quoted
)

var classes = func() (t [128]byteClass) {
	for c := range t {
		if c < 0x20 || c == 0x7f {
			t[c] = classEscape
		}
	}
	t[' '], t['='], t['"'] = classQuote, classQuote, classQuote
	return t
}()

// shown reports whether a non-ASCII character is written unchanged. It returns false for control
// and format characters, line separators and unassigned code points. It returns true for the
// zero-width joiners, because some scripts need them.
func shown(r rune) bool {
	return unicode.IsPrint(r) || unicode.Is(unicode.Zs, r) || r == '\u200c' || r == '\u200d'
}

// AppendText appends s as a value: quoted and escaped as JSON if necessary, otherwise
// unchanged.
func AppendText(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, `""`...)
	}
	if plainWords(s) {
		return append(dst, s...)
	}
	quote := false
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= utf8.RuneSelf || classes[c] == classEscape {
			return appendTextSlow(dst, s)
		}
		quote = quote || classes[c] == classQuote
	}
	if quote {
		return AppendString(dst, s)
	}
	return append(dst, s...)
}

// plainWords reports whether a string of eight bytes or more is ASCII and needs no quotes.
// It checks eight bytes at a time; see escape.go.
func plainWords(s string) bool {
	if len(s) < 8 {
		return false // for short texts, the loop in AppendText is as fast
	}
	for i := 0; ; i += 8 {
		last := len(s)-i <= 8
		if last {
			i = len(s) - 8
		}
		w := load64(s[i:])
		bad := (w - 0x21*ones) | (w ^ '"'*ones - ones) | (w ^ '='*ones - ones) | (w ^ 0x7f*ones - ones) | w
		if bad&highs != 0 {
			return false
		}
		if last {
			return true
		}
	}
}

func appendTextSlow(dst []byte, s string) []byte {
	quote := false
	for i := 0; i < len(s) && !quote; {
		c := s[i]
		if c < utf8.RuneSelf {
			quote = classes[c] != classPlain
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		quote = r == utf8.RuneError && n == 1 || !shown(r) || unicode.IsSpace(r)
		i += n
	}
	if !quote {
		return append(dst, s...)
	}
	dst = append(dst, '"')
	dst = AppendShown(dst, s, true)
	return append(dst, '"')
}

// AppendShown appends s and escapes the characters that must not be shown unchanged, such as
// control characters. If quotes is set, it also escapes all characters that JSON requires to be
// escaped.
func AppendShown(dst []byte, s string, quotes bool) []byte {
	i := 0
	for i < len(s) && s[i] < utf8.RuneSelf && classes[s[i]] != classEscape && (!quotes || escapes[s[i]].n == 0) {
		i++
	}
	dst = append(dst, s[:i]...)
	for i < len(s) {
		c := s[i]
		if c < utf8.RuneSelf {
			switch {
			case classes[c] == classEscape || quotes && escapes[c].n != 0:
				if c == 0x7f {
					dst = append(dst, `\u007f`...)
				} else {
					dst = AppendEscaped(dst, s[i:i+1])
				}
			default:
				dst = append(dst, c)
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 || shown(r) {
			dst = utf8.AppendRune(dst, r)
		} else {
			dst = appendUnicode(dst, r)
		}
		i += n
	}
	return dst
}

// appendUnicode appends r as \uXXXX, or as a surrogate pair.
func appendUnicode(dst []byte, r rune) []byte {
	if r > 0xffff {
		r -= 0x10000
		dst = appendUnicode(dst, 0xd800+r>>10)
		r = 0xdc00 + r&0x3ff
	}
	const hex = "0123456789abcdef"
	return append(dst, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
}

// AppendName appends a key, or a part of a key. Each character that is not allowed in a key is
// replaced by '_'.
func AppendName(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, '_')
	}
	i := 0
	for i < len(s) && s[i] < utf8.RuneSelf && classes[s[i]] == classPlain {
		i++
	}
	dst = append(dst, s[:i]...)
	for i < len(s) {
		c := s[i]
		if c < utf8.RuneSelf {
			if classes[c] != classPlain {
				c = '_'
			}
			dst = append(dst, c)
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError || !shown(r) || unicode.IsSpace(r) { // also true for U+FFFD itself
			r = '_'
		}
		dst = utf8.AppendRune(dst, r)
		i += n
	}
	return dst
}
