package jsontext

import (
	"bytes"
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
