package jsontext

import (
	"encoding/json"
	"testing"
)

func checkUnescaped(t *testing.T, s string) {
	t.Helper()
	var want string
	if json.Unmarshal([]byte(`"`+s+`"`), &want) != nil {
		return // invalid, or more than one value
	}
	if got := string(AppendUnescaped([]byte("head"), []byte(s))); got != "head"+want {
		t.Fatalf("%q: got %q, want %q", s, got, want)
	}
}

var unescapePieces = []string{
	"", "a", "plain words", `\"`, `\\`, `\/`, `\b`, `\f`, `\n`, `\r`, `\t`, `\u0000`, `\u00e9`, `\uABcd`, `\u2028`, `\uffff`,
	`\ud83d\ude00`, `\ud83d`, `\ude00`, `\ude00\ud83d`, `\ud83d\ud83d\ude00`, `\ud83d\u0041`, `\ud83dx`, `\ud83d\n`, `\ufffd`,
	"é", "日本", "🌍", "\xff", "\xe2\x80", "\xed\xa0\x80", "\x7f",
}

func TestUnescapeEqualsEncodingJSON(t *testing.T) {
	for _, a := range unescapePieces {
		for _, b := range unescapePieces {
			checkUnescaped(t, a+b)
			checkUnescaped(t, a+"x"+b+"y"+a)
		}
	}
}

func FuzzUnescape(f *testing.F) {
	for _, s := range unescapePieces {
		f.Add(s)
	}
	f.Fuzz(checkUnescaped)
}

func TestStringLenEndsAtTheClosingQuote(t *testing.T) {
	for in, want := range map[string]int{``: 0, `"`: 0, `x""`: 0, `""`: 2, `"a",1`: 3, `"a\"b" `: 6, `"a\\"b`: 5, `"a\\\"`: 0} {
		if got := StringLen(in); got != want {
			t.Errorf("%s: got %d, want %d", in, got, want)
		}
		if got := StringLen([]byte(in)); got != want {
			t.Errorf("%s as bytes: got %d, want %d", in, got, want)
		}
	}
}
