package tail

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/forebay-log/forebay/cmd/internal/charset"
	"github.com/forebay-log/forebay/cmd/internal/join"
)

// charsetOf parses the name of a charset.
func charsetOf(t testing.TB, name string) *charset.Charset {
	t.Helper()
	c, err := charset.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// encoded returns text in the charset with the given name. For charsets other than UTF-16, text
// must be ASCII.
func encoded(name, text string) (b []byte) {
	for _, u := range utf16.Encode([]rune(text)) {
		switch name {
		case "utf-16le":
			b = append(b, byte(u), byte(u>>8))
		case "utf-16be":
			b = append(b, byte(u>>8), byte(u))
		default:
			b = append(b, byte(u))
		}
	}
	return b
}

func TestFilesAreDecoded(t *testing.T) {
	le := func(s string) string { return string(encoded("utf-16le", s)) }
	be := func(s string) string { return string(encoded("utf-16be", s)) }
	const bom = "\ufeff"
	for _, c := range []struct {
		charset, in string
		want        []string
	}{
		{"latin1", "gr\xfcn\nx\r\n", []string{"grün\n", "x\r\n"}},
		{"latin1", "\x00\x00\x01\x02\x03\n", []string{"\x01\x02\x03\n"}}, // binary if Options.Charset is not set
		{"windows-1252", "5 \x80\n", []string{"5 €\n"}},
		{"windows-1252", bom + "5 €\n", []string{"5 €\n"}}, // a byte order mark of UTF-8 takes precedence
		{"windows-1252", le(bom + "5 €\n"), []string{"5 €\n"}},
		{"utf-16", le("a\r\nb\n"), []string{"a\r\n", "b\n"}},
		{"utf-16", le(bom + "a\n"), []string{"a\n"}},
		{"utf-16", be(bom + "a\nb"), []string{"a\n", "b\n"}},
		{"utf-16be", be("\u0a00\u000a\u0a0a𝄞\n\n"), []string{"\u0a00\n", "\u0a0a𝄞\n", "\n"}},
		{"utf-16le", le("\x00\x00a\n\x00b\u0100\n\x00"), []string{"a\n", "b\u0100\n"}}, // NUL bytes between lines are skipped
		{"utf-16be", be("\x00\x00a\n\x00b\u0100\n\x00"), []string{"a\n", "b\u0100\n"}},
		{"utf-16le", le("x\n") + "y", []string{"x\n"}}, // ends in an incomplete code unit
		{"utf-16le", le(bom), nil},
	} {
		s, messages := readOnce(t, c.in, Options{Charset: charsetOf(t, c.charset)})
		if !reflect.DeepEqual(s.lines, c.want) || messages != "" {
			t.Errorf("%s: %q: %q, want %q; messages %q", c.charset, c.in, s.lines, c.want, messages)
		}
	}
	s, messages := readOnce(t, "\x1f\x8b\x08\x00\n", Options{Charset: charsetOf(t, "latin1")})
	if len(s.lines) > 0 || !strings.Contains(messages, "compressed (gzip)") {
		t.Errorf("%q, messages %q", s.lines, messages)
	}
}

// MaxRecord limits the length of a line in the file and its length in UTF-8.
func TestLimitAppliesToFileAndUTF8(t *testing.T) {
	for _, c := range []struct {
		charset, line string
		tooLong       int64
	}{
		{"utf-16le", strings.Repeat("x", 50) + "\r\n", 0},
		{"utf-16le", strings.Repeat("x", 51) + "\n", 104},
		{"utf-16le", strings.Repeat("x", 100_000) + "\n", 200_002},
		{"utf-16be", strings.Repeat("\u0a00", 100_000) + "\n", 200_002},
		{"utf-16le", strings.Repeat("€", 34) + "\n", 70}, // 102 bytes in UTF-8
		{"latin1", strings.Repeat("ü", 50) + "\n", 0},
		{"latin1", strings.Repeat("ü", 51) + "\n", 52},
	} {
		in := encoded(c.charset, "a\n"+c.line+"b\n")
		s, _ := readOnce(t, string(in), Options{Charset: charsetOf(t, c.charset), MaxRecord: 100})
		want, long := []string{"a\n", "b\n"}, []int64{c.tooLong}
		if c.tooLong == 0 {
			want, long = []string{"a\n", c.line, "b\n"}, nil
		}
		if !reflect.DeepEqual(s.lines, want) || !reflect.DeepEqual(s.long, long) {
			t.Errorf("%s, %d characters: %.200q, too long %d, want %d", c.charset, len(c.line), s.lines, s.long, long)
		}
	}
}

// The newline does not count toward MaxRecord, also in a file whose byte order mark selects UTF-16.
func TestCharsetLimitOfMarkedFile(t *testing.T) {
	const limit = 2 * initialBuf
	line := strings.Repeat("x", limit/2) + "\r\n"
	in := encoded("utf-16le", "\ufeff"+strings.Repeat("a\n", tailBytes)+line)
	s, _ := readOnce(t, string(in), Options{Charset: charsetOf(t, "windows-1252"), MaxRecord: limit})
	if len(s.long) > 0 || len(s.lines) != tailBytes+1 || s.lines[tailBytes] != line {
		t.Errorf("%d lines, too long %d", len(s.lines), s.long)
	}
}

// A last line without a newline is too long if it exceeds MaxRecord.
func TestCharsetLimitOfPartialLine(t *testing.T) {
	for n := int64(100); n <= 108; n += 2 {
		in := encoded("utf-16le", strings.Repeat("x", int(n/2)))
		s, _ := readOnce(t, string(in), Options{Charset: charsetOf(t, "utf-16le"), MaxRecord: 101})
		var long []int64
		if n > 101 {
			long = []int64{n}
		}
		if !reflect.DeepEqual(s.long, long) || len(s.lines) != 1-len(long) {
			t.Errorf("%d bytes: %d lines, too long %d", n, len(s.lines), s.long)
		}
	}
}

// After a restart, reading continues at the next line, with the byte order that the mark at the
// start of the file specifies. Lines are decoded before they are joined.
func TestRestartKeepsByteOrder(t *testing.T) {
	for _, name := range []string{"utf-16le", "utf-16be"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "x.log")
			rules, err := join.Parse([]string{"^grün"})
			if err != nil {
				t.Fatal(err)
			}
			o := Options{Dir: filepath.Join(dir, "state"), Charset: charsetOf(t, "utf-16"), Join: rules}
			add := func(text string) { write(t, path, string(encoded(name, text))) }
			want := func(lines ...string) {
				t.Helper()
				if s, _ := readFileOnce(t, path, o); !reflect.DeepEqual(s.lines, lines) {
					t.Errorf("%q, want %q", s.lines, lines)
				}
			}
			add("\ufeffgrün 1\n a\ngrün 2\n")
			want("grün 1\n a\n", "grün 2\n")
			add("grün 3\n b\n")
			want("grün 3\n b\n")
			add("grün")
			write(t, path, "\x00") // an incomplete code unit, which the next write may complete
			want("grün\n")
			if st, err := os.Stat(path); err != nil || st.Size()%2 != 1 {
				t.Fatal(st, err)
			}
		})
	}
}

// If a line was delivered before its newline was written, the newline is not delivered as an empty
// line.
func TestMissingEndIsNotALine(t *testing.T) {
	for _, name := range []string{"utf-16le", "utf-16be"} {
		path := filepath.Join(t.TempDir(), "x.log")
		h := newStepper(t, Options{Patterns: []string{path}, Charset: charsetOf(t, name), PartialWait: time.Second})
		write(t, path, string(encoded(name, "first\nsec")))
		h.advance(0)
		h.advance(2 * time.Second)
		h.want("first\n", "sec\n")
		write(t, path, string(encoded(name, "\r")))
		h.advance(0)
		write(t, path, string(encoded(name, "\nthird\n")))
		h.advance(0)
		h.want("third\n")
	}
}
