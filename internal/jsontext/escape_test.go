package jsontext_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/testkit"
)

// marshalString returns a string as encoding/json and slog write it.
func marshalString(s string) string {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic(err)
	}
	out := strings.TrimSuffix(buf.String(), "\n")
	// encoding/json has short escapes for \b and \f, but slog does not.
	return strings.NewReplacer(`\\`, `\\`, `\b`, `\u0008`, `\f`, `\u000c`, `\ufffd`, "\ufffd").Replace(out[1 : len(out)-1])
}

func checkEscape(t *testing.T, s string) {
	t.Helper()
	want := marshalString(s)
	if got := string(jsontext.AppendEscaped(nil, s)); got != want {
		t.Fatalf("appendEscaped(%q)\n got %s\nwant %s", s, got, want)
	}
	// The result does not depend on the capacity and content of dst.
	dst := append(make([]byte, 0, len(s)+7), "head"...)
	if got := string(jsontext.AppendEscaped(dst, s)); got != "head"+want {
		t.Fatalf("appendEscaped(head, %q)\n got %s\nwant %s", s, got, want)
	}
}

var escapePieces = []string{
	"", "a", "plain words ", "0123456789abcdef", "\"", "\\", "\n", "\t", "\r\n", "\x00", "\x1f", "\x7f", " ",
	"ж", "Привет", "é", "ß", "日本", "한국어", "ก็", "हि", "\u2028", "\u2029", "\u2027", "\u202a", "“”", "🌍", "\U0010ffff", "\U00010000",
	"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc2", "\xe0\x80\x80", "\xe0\x9f\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xed\xa0\x80", "\xed\xbf\xbf",
	"\xee\x80\x80", "\xef\xbf\xbd", "\xf0\x80\x80\x80", "\xf0\x8f\xbf\xbf", "\xf0\x90\x80", "\xf4\x90\x80\x80", "\xf5", "\xff", "\xe2\x80", "\xe2",
}

func TestEscapeEqualsEncodingJSON(t *testing.T) {
	for _, a := range escapePieces {
		checkEscape(t, a)
		for _, b := range escapePieces {
			for pad := range 9 {
				checkEscape(t, a+strings.Repeat("x", pad)+b)
				checkEscape(t, strings.Repeat("x", pad)+a+b+"tail of some length")
			}
		}
	}
	for c := range 256 {
		for n := range 40 {
			s := []byte(strings.Repeat("é", 20))[:n]
			checkEscape(t, string(append(s, byte(c)))+"ab")
			checkEscape(t, strings.Repeat("s", n)+string([]byte{byte(c)})+"ab")
		}
	}
}

// Long texts are scanned in blocks. Every byte is tested at every position of a block.
func TestEscapeEveryByteInBlocks(t *testing.T) {
	for n := range 300 {
		for _, c := range []byte("\x00\x1f\"\\\x7f\x80\xc3\xff") {
			s := []byte(strings.Repeat("s", 300))
			s[n] = c
			checkEscape(t, string(s))
			s[299-n/2] = '\\' // a second byte to escape, before or after the byte c
			checkEscape(t, string(s))
		}
	}
}

// Both halves of a long text are checked in the same loop. Each piece is tested at every position,
// including the start of the second half.
func TestEscapeAcrossHalves(t *testing.T) {
	text := strings.Repeat("Größe 日本 🌍 žluť, ", 12)
	for n := range 160 {
		for _, piece := range escapePieces {
			s := text[min(n, n%7):n] + piece + text[n:n+140]
			if got, want := string(jsontext.AppendEscaped(nil, s)), marshalString2(s); got != want {
				t.Fatalf("%q:\n got %s\nwant %s", s, got, want)
			}
		}
	}
}

func TestEscapeRandomTexts(t *testing.T) {
	rng := testkit.Rand(testkit.Seed(t))
	for range effort(20_000) {
		var sb strings.Builder
		for range rng.IntN(12) {
			switch rng.IntN(4) {
			case 0:
				sb.WriteString(escapePieces[rng.IntN(len(escapePieces))])
			case 1:
				sb.WriteRune(rune(rng.IntN(utf8.MaxRune)))
			case 2:
				sb.WriteByte(byte(rng.IntN(256)))
			default:
				sb.WriteString(strings.Repeat("ж", rng.IntN(12)))
			}
		}
		checkEscape(t, sb.String())
	}
}

// Every sequence of up to three bytes is escaped correctly in every loop, with text before and
// after it. Four-byte sequences are tested by their prefixes and at random.
func TestEscapeEveryShortSequence(t *testing.T) {
	step := 1 + 300/effort(60)
	for v := 0; v < 1<<24; v += step {
		s := string([]byte{byte(v >> 16), byte(v >> 8), byte(v)})
		if v>>16 < 0x80 && v>>8&255 < 0x80 {
			continue // the tests above cover an ASCII byte at the start
		}
		s = "жж" + s + "日本日"
		if got, want := jsontext.AppendEscaped(nil, s), marshalString2(s); string(got) != want {
			t.Fatalf("%q: got %s want %s", s, got, want)
		}
	}
}

// marshalString2 is a faster implementation of marshalString.
func marshalString2(s string) string {
	var sb strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			sb.WriteString("\ufffd")
		case r == '\u2028' || r == '\u2029':
			fmt.Fprintf(&sb, `\u%x`, r)
		case r == '"' || r == '\\':
			sb.WriteByte('\\')
			sb.WriteRune(r)
		case r == '\n':
			sb.WriteString(`\n`)
		case r == '\r':
			sb.WriteString(`\r`)
		case r == '\t':
			sb.WriteString(`\t`)
		case r < 0x20:
			fmt.Fprintf(&sb, `\u%04x`, r)
		default:
			sb.WriteRune(r)
		}
		i += n
	}
	return sb.String()
}

func FuzzEscape(f *testing.F) {
	for _, s := range escapePieces {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) { checkEscape(t, s) })
}

var escapeTexts = map[string]string{
	"ascii":    strings.Repeat("the quick brown fox jumps over it. ", 30)[:1024],
	"cyrillic": cut(strings.Repeat("Соединение с сервером потеряно, повтор через 5 с. ", 30)),
	"german":   cut(strings.Repeat("Die Überprüfung der Größe schlägt für größere Straßen fehl. ", 30)),
	"chinese":  cut(strings.Repeat("与服务器的连接已断开，将在五秒后重试。", 30)),
	"mixed":    cut(strings.Repeat("Grüße, мир, 世界 🌍 ok. ", 60)),
	"scripts":  cut(strings.Repeat("Größe žluťoučký 試験データ проверка 🙂 ", 40)),
	"stack":    strings.Repeat("main.handler(0xc000123456)\n\t/srv/app/internal/http/handler.go:123 +0x1d\n", 15)[:1024],
}

func cut(s string) string {
	s = s[:1024]
	return strings.ToValidUTF8(s, "")
}

func BenchmarkEscape(b *testing.B) {
	for _, name := range []string{"ascii", "cyrillic", "german", "chinese", "mixed", "scripts", "stack"} {
		s := escapeTexts[name]
		dst := make([]byte, 0, 8192)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(s)))
			for b.Loop() {
				jsontext.AppendEscaped(dst, s)
			}
		})
	}
}

func BenchmarkEscapeShort(b *testing.B) {
	for _, s := range []string{"id", "user", "user_id", "request_id", "request finished in time"} {
		dst := make([]byte, 0, 8192)
		b.Run(fmt.Sprint(len(s)), func(b *testing.B) {
			for b.Loop() {
				jsontext.AppendEscaped(dst, s)
			}
		})
	}
}
