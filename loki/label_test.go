package loki

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/forebay-log/forebay/encode"
)

// A label value may contain any bytes. The resulting label is valid for Loki, which refuses invalid
// UTF-8 and U+FFFD.
func TestLabelValuesAreValidForLoki(t *testing.T) {
	for value, want := range map[string]string{
		"caf\xe9":  "caf?",
		"a\ufffdb": "a?b",
		"\xff\xfe": "?",
		"é🙂\u2028": "é🙂\u2028",
	} {
		for w, form := range map[string]string{wireProtobuf: `{app="%s", x="%s"}`, wireJSON: `map[app:%s x:%s]`} {
			_, labels := encodeOne(t, Config{Wire: w, NoLevelLabel: true, Labels: map[string]string{"app": value}, LabelAttrs: []string{"x"}},
				encode.Record{Attrs: []slog.Attr{slog.String("x", value)}})
			if wanted := fmt.Sprintf(form, want, want); labels != wanted {
				t.Errorf("%s %q: got %s, want %s", w, value, labels, wanted)
			}
		}
	}
}
