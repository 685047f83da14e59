package rivals

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// A Native returns the loop that logs the records of s to w in the fastest way that one logger
// supports.
type Native func(w io.Writer, s Scenario) Run

// Handler returns a Native that logs through a slog handler.
func Handler(h func(io.Writer) slog.Handler) Native {
	return func(w io.Writer, s Scenario) Run { return ViaSlog(h(w), s) }
}

// Check logs the records of s and four hostile records through l, and returns the defects of the
// output. Defects are lines that are not JSON or not UTF-8; missing, unexpected, repeated or
// different fields; and times without nanoseconds.
func Check(l Native, s Scenario) []string {
	var faults []string
	if err := checkRecord(l, s); err != nil {
		faults = append(faults, err.Error())
	}
	for _, t := range []struct {
		s    Scenario
		what string
	}{
		{BadKey, "keys not escaped"},
		{BadUTF8, "invalid UTF-8 not replaced"},
		{Controls, "control characters not escaped"},
		{NaN, "NaN breaks the record"},
	} {
		if checkRecord(l, t.s) != nil {
			faults = append(faults, t.what)
		}
	}
	return faults
}

// checkRecord logs the record of s several times and checks each line. A single line is not
// sufficient to see whether times have nanoseconds, because one time in a thousand ends in 000.
func checkRecord(l Native, s Scenario) error {
	var out bytes.Buffer
	run := l(&out, s)
	if s == Disabled {
		if run(0, 1); out.Len() > 0 {
			return fmt.Errorf("a disabled call wrote %q", short(out.String()))
		}
		return nil
	}
	digits := 0
	for range 8 {
		out.Reset()
		run(0, 1)
		line, ok := bytes.CutSuffix(out.Bytes(), []byte("\n"))
		if !ok || bytes.IndexByte(line, '\n') >= 0 {
			return fmt.Errorf("a record is not exactly one line: %q", short(out.String()))
		}
		d, err := checkLine(line, s)
		if err != nil {
			return err
		}
		digits = max(digits, d)
	}
	if digits < 7 {
		return fmt.Errorf("times have %d digits below the second, not 9", digits)
	}
	return nil
}

// checkLine checks one line, and returns the number of fractional digits of its time.
func checkLine(line []byte, s Scenario) (digits int, err error) {
	if !utf8.Valid(line) {
		return 0, fmt.Errorf("not UTF-8: %q", short(string(line)))
	}
	got, err := decode(line)
	if err != nil {
		return 0, err
	}
	stamp, _ := got["time"].(string)
	at, err := time.Parse(time.RFC3339Nano, stamp)
	if err != nil {
		return 0, fmt.Errorf("no RFC 3339 time in %q", short(string(line)))
	}
	if d := time.Since(at); d < -time.Minute || d > time.Minute {
		return 0, fmt.Errorf("the time %s is not now", stamp)
	}
	if level, _ := got["level"].(string); !strings.EqualFold(level, "info") {
		return 0, fmt.Errorf("level %v", got["level"])
	}
	want, err := expected(s)
	if err != nil {
		return 0, err
	}
	for _, fields := range []map[string]any{got, want} {
		delete(fields, "time")
		delete(fields, "level")
	}
	if err := same(got, want); err != nil {
		return 0, err
	}
	_, frac, _ := strings.Cut(strings.TrimSuffix(stamp, "Z"), ".")
	return len(frac), nil
}

// expected returns the fields of the record of s, as log/slog writes them and encoding/json decodes
// them. A NaN may have any form.
func expected(s Scenario) (map[string]any, error) {
	var out bytes.Buffer
	Slog(&out, s)(0, 1)
	fields, err := decode(out.Bytes())
	if s == NaN {
		fields["load"] = nil
	}
	return fields, err
}

// same compares the fields of a line with the expected ones. A nil in want matches any value.
func same(got, want map[string]any) error {
	all := maps.Clone(want)
	maps.Copy(all, got)
	for _, k := range slices.Sorted(maps.Keys(all)) {
		g, ok := got[k]
		w, expected := want[k]
		if !expected {
			return fmt.Errorf("unexpected field %q", k)
		}
		if !ok || w != nil && !reflect.DeepEqual(g, w) {
			return fmt.Errorf("field %q is %v, not %v", k, short(fmt.Sprint(g)), short(fmt.Sprint(w)))
		}
	}
	return nil
}

// decode decodes a JSON object. Repeated keys at its top level are an error.
func decode(line []byte) (map[string]any, error) {
	dec := json.NewDecoder(bytes.NewReader(line))
	if start, _ := dec.Token(); !json.Valid(line) || start != json.Delim('{') {
		return nil, fmt.Errorf("not a JSON object: %q", short(string(line)))
	}
	fields := map[string]any{}
	for dec.More() {
		key, _ := dec.Token()
		k := key.(string)
		if _, ok := fields[k]; ok {
			return nil, fmt.Errorf("key %q twice", k)
		}
		var v any
		if err := dec.Decode(&v); err != nil {
			return nil, err
		}
		fields[k] = v
	}
	return fields, nil
}

func short(s string) string {
	if len(s) > 60 {
		return s[:60] + "..."
	}
	return s
}
