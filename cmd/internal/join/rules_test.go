package join

import (
	"bytes"
	"testing"
	"unicode/utf8"
)

func TestParseRejectsInvalidCombinations(t *testing.T) {
	for _, names := range [][]string{{""}, {"("}, {"^a", "^b"}, {"go", "^a"}, {"^a", "auto"}} {
		if _, err := Parse(names); err == nil {
			t.Errorf("%q was accepted", names)
		}
	}
	if j, err := Parse([]string{"cri", "^a"}); err != nil || !j.requiresContainerLine() {
		t.Error(err)
	}
}

// The text that parseCRI returns is part of the line.
func FuzzCRI(f *testing.F) {
	f.Add([]byte("2026-11-23T10:00:00.123456789Z stdout F text\n"))
	f.Add([]byte("2026-11-23T10:00:00+01:00 stderr P:x part\r\n"))
	f.Add([]byte("2026-11-23T10:00:00Z stdout F\n"))
	f.Fuzz(func(t *testing.T, line []byte) {
		w, ok := parseCRI(line)
		if ok && (!bytes.Contains(line, w.text) || w.stream != "stdout" && w.stream != "stderr") {
			t.Errorf("%q: %+v", line, w)
		}
	})
}

// The text that parseDocker returns is valid UTF-8. If it does not end in a newline, the line is
// partial.
func FuzzDocker(f *testing.F) {
	f.Add([]byte(`{"log":"text\n","stream":"stdout","time":"2026-11-23T10:00:00.123456789Z"}` + "\n"))
	f.Add([]byte(`{"log":"p\u00e9\"art","stream":"stderr","attrs":{"a":"b"},"time":"2026-11-23T10:00:00Z"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		w, ok := parseDocker(line)
		if ok && (!utf8.Valid(w.text) || w.partial == bytes.HasSuffix(w.text, []byte("\n"))) {
			t.Errorf("%q: %+v", line, w)
		}
	})
}
