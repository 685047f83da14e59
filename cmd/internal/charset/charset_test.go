package charset_test

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/forebay-log/forebay/cmd/internal/charset"
)

// parse returns the named charset.
func parse(t testing.TB, name string) *charset.Charset {
	t.Helper()
	c, err := charset.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// wide encodes text in UTF-16. high and low are the indexes of the high byte and the low byte in a
// code unit.
func wide(text string, high, low int) (b []byte) {
	for _, u := range utf16.Encode([]rune(text)) {
		var pair [2]byte
		pair[high], pair[low] = byte(u>>8), byte(u)
		b = append(b, pair[:]...)
	}
	return b
}

func TestAppendConvertsToUTF8(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"utf-8", "a\xff\n", "a\xff\n"},
		{"UTF-16LE", string(wide("grün 𝄞\n", 1, 0)), "grün 𝄞\n"},
		{"utf-16be", string(wide("grün 𝄞\n", 0, 1)), "grün 𝄞\n"},
		{"utf-16", string(wide("x\n", 1, 0)), "x\n"},
		{"utf-16le", "\x00\xd8a\x00\n\x00", "\ufffda\n"}, // the second half of a surrogate pair is missing
		{"utf-16le", "a\x00\n", "a\ufffd"},
		{"latin1", "gr\xfcn\n", "grün\n"},
		{"iso-8859-1", "\x80", "\u0080"},
		{"windows-1252", "10 \x80 \x81\n", "10 € \ufffd\n"},
		{"windows-1251", "\xce\xf8\xe8\xe1\xea\xe0", "Ошибка"},
		{"ibm850", "gr\x81n", "grün"},
		{"iso-8859-15", "\x80\xa0\xa4\xff", "\u0080\u00a0€ÿ"},
		{"koi8-r", "\xf7\xff", "ВЪ"},
		{"windows-1258", "\x80\xff", "€ÿ"},
	} {
		got := string(parse(t, c.name).Append([]byte("> "), []byte(c.text)))
		if got != "> "+c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestParseIgnoresCase(t *testing.T) {
	for _, name := range charset.Names() {
		if got := parse(t, strings.ToUpper(name)).String(); got != name {
			t.Errorf("the name %s in capital letters is parsed as %s", name, got)
		}
	}
	_, err := charset.Parse("latin-one")
	if err == nil || !strings.Contains(err.Error(), "latin1, ") || !strings.Contains(err.Error(), "windows-1252") {
		t.Error(err)
	}
}

func TestByteOrderMarkOverridesCharset(t *testing.T) {
	for _, c := range []struct {
		name, start, want string
		mark              int
	}{
		{"utf-16", "\xfe\xff\x00a", "utf-16be", 2},
		{"utf-16", "\xff\xfea\x00", "utf-16le", 2},
		{"utf-16", "a\x00", "utf-16", 0},
		{"windows-1252", "\xff\xfea\x00", "utf-16le", 2},
		{"windows-1252", "\xef\xbb\xbfa", "utf-8", 3},
		{"windows-1252", "\xef\xbb", "windows-1252", 0},
		{"utf-8", "\xef\xbb\xbfa", "utf-8", 3},
		{"utf-8", "\xff\xfea\x00", "utf-8", 0},
		{"utf-16le", "", "utf-16le", 0},
	} {
		if detected, n := parse(t, c.name).Detect([]byte(c.start)); detected.String() != c.want || n != c.mark {
			t.Errorf("%s, %q: got %s, %d, want %s, %d", c.name, c.start, detected, n, c.want, c.mark)
		}
	}
}

// In UTF-16, only the code unit '\n' ends a line. The byte 0x0a in another code unit does not end a
// line, even if a zero byte of a neighboring code unit is next to it.
func TestNewlineByteWithinUnitIsNoLineEnd(t *testing.T) {
	const text = "\u0a00\u0a0a\u000b\u0100 a\nb\u0a00\n"
	for _, c := range []struct {
		name      string
		high, low int
	}{{"utf-16le", 1, 0}, {"utf-16be", 0, 1}} {
		cs, b := parse(t, c.name), wide(text, c.high, c.low)
		first := len(wide(text[:strings.IndexByte(text, '\n')+1], c.high, c.low))
		for end := range len(b) {
			want := 0
			if end >= first {
				want = first
			}
			if got := cs.LineEnd(b[:end], 0); got != want {
				t.Errorf("%s: LineEnd of %d of %d bytes: %d, want %d", c.name, end, len(b), got, want)
			}
			if got := cs.LastLineEnd(b[:end], 0); got != want {
				t.Errorf("%s: LastLineEnd of %d of %d bytes: %d, want %d", c.name, end, len(b), got, want)
			}
		}
		if got := cs.LineEnd(b[1:], 1); got != first-1 {
			t.Errorf("%s: LineEnd from the middle of a code unit: %d, want %d", c.name, got, first-1)
		}
		if got := cs.LastLineEnd(b, 0); got != len(b) {
			t.Errorf("%s: LastLineEnd: %d, want %d", c.name, got, len(b))
		}
	}
}

// Decoding a text line by line has the same result as decoding it at once. The result is valid
// UTF-8.
func FuzzAppend(f *testing.F) {
	f.Add([]byte("a\nb\r\n\x00\n"), uint8(1))
	f.Add([]byte("gr\xfcn\n\x81\x40\n\x80"), uint8(12))
	f.Add(wide("grün 𝄞\n\u0a00\u000a", 1, 0), uint8(2))
	f.Fuzz(func(t *testing.T, text []byte, which uint8) {
		names := charset.Names()
		c := parse(t, names[1+int(which)%(len(names)-1)])
		whole := c.Append(nil, text)
		if !utf8.Valid(whole) {
			t.Fatalf("%s: %q is not UTF-8", c, whole)
		}
		var parts []byte
		for off := 0; off < len(text); {
			n := c.LineEnd(text[off:], int64(off))
			if n == 0 {
				n = len(text) - off
			}
			line := c.Append(nil, text[off:off+n])
			if i := bytes.IndexByte(line, '\n'); i >= 0 && i != len(line)-1 {
				t.Fatalf("%s: line %q contains a newline before its end", c, line)
			}
			parts = append(parts, line...)
			off += n
		}
		if !bytes.Equal(parts, whole) {
			t.Fatalf("%s: decoded at once %q, line by line %q", c, whole, parts)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	line := []byte(`10.0.0.1 - - "GET /gr` + "\xfc" + `n HTTP/1.1" 200 512` + "\n")
	for _, c := range []struct {
		name string
		text []byte
	}{{"windows-1252", line}, {"utf-16le", wide(string(parse(b, "latin1").Append(nil, line)), 1, 0)}} {
		b.Run(c.name, func(b *testing.B) {
			cs, dst := parse(b, c.name), []byte(nil)
			b.SetBytes(int64(len(c.text)))
			for b.Loop() {
				dst = cs.Append(dst[:0], c.text)
			}
		})
	}
}
