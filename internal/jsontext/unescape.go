package jsontext

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// AppendUnescaped appends the value of s, the text between the quotes of a valid JSON string. As in
// encoding/json, each unpaired surrogate and each invalid byte becomes U+FFFD.
func AppendUnescaped(dst, s []byte) []byte {
	for {
		n := bytes.IndexByte(s, '\\')
		if n < 0 {
			return appendValid(dst, s)
		}
		dst = appendValid(dst, s[:n])
		c := s[n+1]
		s = s[n+2:]
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			r := unit(s)
			s = s[4:]
			if utf16.IsSurrogate(r) {
				pair := rune(utf8.RuneError)
				if len(s) >= 6 && s[0] == '\\' && s[1] == 'u' {
					pair = utf16.DecodeRune(r, unit(s[2:]))
				}
				if r = pair; r != utf8.RuneError {
					s = s[6:]
				}
			}
			dst = utf8.AppendRune(dst, r)
			continue
		}
		dst = append(dst, c)
	}
}

// ScanString finds the end of a JSON string and checks its syntax, except that invalid UTF-8 is
// accepted. s[i] is the byte after the opening quote. end is the index after the closing quote, or
// -1 if there is no valid string. ascii reports that all bytes are ASCII; it may be false if a byte
// shortly after the string is not. escaped reports whether there are escape sequences.
func ScanString(s []byte, i int) (end int, ascii, escaped bool) {
	high := uint64(0)
	for {
		if i >= 0 && i <= len(s)-8 { // in this form, the compiler omits the bounds checks
			w := binary.LittleEndian.Uint64(s[i:])
			high |= w
			m := Special(w)
			if m == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(m) >> 3
		} else {
			for uint(i) < uint(len(s)) && s[i] >= ' ' && s[i] != '"' && s[i] != '\\' { // the last bytes of s
				high |= uint64(s[i])
				i++
			}
		}
		if uint(i) >= uint(len(s)) || s[i] < ' ' {
			return -1, false, false
		}
		if s[i] == '"' {
			return i + 1, high&highs == 0, escaped
		}
		n := escapeLen(s[i:])
		if n == 0 {
			return -1, false, false
		}
		escaped = true
		i += n
	}
}

// escapeLen returns the length of the escape sequence at the beginning of s, which begins with a
// backslash, or 0 if it is invalid.
func escapeLen(s []byte) int {
	if len(s) < 2 {
		return 0
	}
	switch s[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(s) < 6 {
			return 0
		}
		for _, c := range s[2:6] {
			if c-'0' > 9 && c|0x20-'a' > 5 {
				return 0
			}
		}
		return 6
	}
	return 0
}

// unit returns the number in the first four hexadecimal digits of s.
func unit(s []byte) (r rune) {
	for _, c := range s[:4] {
		if c > '9' {
			c = c&^0x20 - 'A' + 10 + '0'
		}
		r = r<<4 | rune(c-'0')
	}
	return r
}

// appendValid appends s. Each byte of invalid UTF-8 becomes U+FFFD.
func appendValid(dst, s []byte) []byte {
	if utf8.Valid(s) {
		return append(dst, s...)
	}
	for len(s) > 0 {
		r, n := utf8.DecodeRune(s)
		dst = utf8.AppendRune(dst, r)
		s = s[n:]
	}
	return dst
}

// StringLen returns the length of the JSON string at the beginning of s, including its quotes. It
// returns 0 if there is none, or its end is missing.
func StringLen[T string | []byte](s T) int {
	if len(s) == 0 || s[0] != '"' {
		return 0
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return 0
}
