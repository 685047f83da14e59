package redact

import (
	"log/slog"
	"regexp"
	"testing"
)

func TestRulesApplyToLinesOfOtherPrograms(t *testing.T) {
	r := rules(t, Config{Keys: []string{"pin"}, Patterns: []*regexp.Regexp{regexp.MustCompile(`\d{4}`)}, Text: `<"x">`})
	var w Walker
	for in, want := range map[string]string{
		` {"pin":[1],"a":1234} `: ` {"pin":"<\"x\">","a":"<\"x\">"} `, `{"a":"\u0031234","1234":{}}`: `{"a":"<\"x\">","<\"x\">":{}}`, `{"a":1}`: "",
	} {
		out, changed := w.AppendJSON(r, []byte("kept:"), []byte(in))
		if string(out) != "kept:"+want || changed != (want != "") {
			t.Errorf("%s: %s, %v", in, out, changed)
		}
	}
	text := func(want string, changed bool) func(string, bool) {
		return func(got string, ch bool) {
			t.Helper()
			if got != want || ch != changed {
				t.Errorf("%s, %v; want %s", got, ch, want)
			}
		}
	}
	text(`<"x">`, true)(w.Pair(r, "user.PIN", "1"))
	text(`<"x">`, false)(w.Pair(r, "pin", `<"x">`))
	text(`{"pin":"<\"x\">"}`, true)(w.Pair(r, "a", `{"pin":1}`))
	text("pin", false)(w.Text(r, "pin"))
	text(`got "pin":"<\"x\">"`, true)(w.Text(r, `got "pin":1`))
	text(`"pin":<"x">`, true)(w.Match(r, `"pin":1234`))
	msg, attrs := w.Record(r, nil, "1234", []slog.Attr{slog.Int("pin", 1), slog.Any("m", map[string]int{"pin": 1})})
	if msg != `<"x">` || attrs[0].Value.String() != `<"x">` || attrs[1].Value.String() != `{"pin":"<\"x\">"}` {
		t.Error(msg, attrs)
	}
}
