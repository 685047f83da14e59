package charsets

import (
	"bytes"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/simplifiedchinese"

	"github.com/forebay-log/forebay/cmd/internal/charset"
)

func TestCharsetsDecodeToUTF8(t *testing.T) {
	japan, err := japanese.ShiftJIS.NewEncoder().String("a 表示エラー\n")
	if err != nil {
		t.Fatal(err)
	}
	china, err := simplifiedchinese.GBK.NewEncoder().String("错误\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, text, want string }{
		{"shift_jis", japan, "a 表示エラー\n"},
		{"windows-932", japan, "a 表示エラー\n"},
		{"gbk", china, "错误\n"},
		{"gbk", "a\xff\xff\n", "a\ufffd\ufffd\n"},
		{"gbk", "a\x81\nb\n", "a\ufffd\nb\n"}, // ends in an incomplete character
	} {
		cs, err := charset.Parse(c.name)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(cs.Append(nil, []byte(c.text))); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// Decoding a text line by line has the same result as decoding it at once. The result is valid
// UTF-8.
func FuzzAppend(f *testing.F) {
	f.Add([]byte("\x81\x40\n\x81\n"), uint8(0))
	f.Fuzz(func(t *testing.T, text []byte, which uint8) {
		names := []string{"shift_jis", "euc-jp", "euc-kr", "gbk", "gb18030", "big5"}
		cs, err := charset.Parse(names[int(which)%len(names)])
		if err != nil {
			t.Fatal(err)
		}
		whole := cs.Append(nil, text)
		var parts []byte
		for line := range bytes.Lines(text) {
			parts = cs.Append(parts, line)
		}
		if !utf8.Valid(whole) || !bytes.Equal(parts, whole) {
			t.Errorf("%s: %q, by line %q", cs, whole, parts)
		}
	})
}
