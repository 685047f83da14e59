package record

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// Members passes each member in its raw form and returns the index of the closing brace, or -1 if
// yield returned false.
func TestMembersReturnsEachMember(t *testing.T) {
	for line, want := range map[string]string{
		`{}`: "", ` { } `: "", `{"a":1,"b" : [1,"}"] , "c":{"a":"\""} }`: `"a"=1 "b"=[1,"}"] "c"={"a":"\""} `,
	} {
		b, got := []byte(line), ""
		end := Members(b, Space(b, 0), func(m Member) bool {
			got += line[m.Key:m.KeyEnd] + "=" + line[m.Value:m.End] + " "
			return true
		})
		if got != want || end != strings.LastIndexByte(line, '}') {
			t.Errorf("%s: %s, %d", line, got, end)
		}
	}
	if Members([]byte(`{"a":1}`), 0, func(Member) bool { return false }) != -1 {
		t.Error("yield returned false, and Members did not return -1")
	}
}

// Pairs passes each pair in its raw form and returns false for an incomplete value. LogfmtText and
// AppendString return the text of raw values.
func TestPairsReturnsEachPair(t *testing.T) {
	const line = `x a=1  b="2 \" 3" c=  d`
	got := ""
	if !Pairs([]byte(line), func(m Member) bool {
		got += line[m.Key:m.KeyEnd] + "|" + line[m.KeyEnd:m.Value] + line[m.Value:m.End] + " "
		return true
	}) || got != `x| a|=1 b|="2 \" 3" c|= d| ` {
		t.Error(got)
	}
	if Pairs([]byte(`a="`), func(Member) bool { return true }) {
		t.Error("incomplete value: Pairs returned true")
	}
	for in, want := range map[string]string{`a`: "a", ``: "", `""`: "", `"a b"`: "a b", `"\u0041\n"`: "A\n", `"\x41"`: "A", `"\/"`: "/", `"\!"`: `\!`} {
		if got := LogfmtText([]byte(in)); string(got) != want {
			t.Errorf("%s: %q", in, got)
		}
	}
	if string(LogfmtText(nil)) != "true" || string(AppendString(nil, []byte(`"\u0041"`))) != "A" || string(AppendString(nil, []byte(`"é"`))) != "é" {
		t.Error("wrong text of a value")
	}
}

// Rewrite changes level and time only if they differ between the old and the new line.
func TestRewriteKeepsTimesAndLevelsOfTheInput(t *testing.T) {
	at := time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)
	more := []slog.Attr{slog.String("tag", "x")}
	for _, c := range []struct {
		f         Format
		line      string
		level     slog.Level
		time      time.Time
		ascii     bool
		is, stamp string
	}{
		{JSON, `{"a":1}`, slog.LevelWarn, at, true, "", ""},
		{JSON, `{"level":"error","a":"é"}`, slog.LevelError, at, false, "level", ""},
		{JSON, `{"level":"odd","time":"2025-01-01T00:00:00Z"}`, slog.LevelWarn, at.AddDate(0, 0, 0), true, "", "time"},
		{Logfmt, "x", slog.LevelWarn, at, false, "", ""},
		{Logfmt, "lvl=error", slog.LevelError, at, false, "lvl", ""},
		{Text, "ERROR", slog.LevelWarn, at, false, "", ""},
	} {
		if c.stamp != "" {
			c.time = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
		}
		ev := Event{Format: c.f, Level: slog.LevelWarn, HasLevel: true, Time: at, More: more, levelKey: []byte("old"), timeKey: []byte("old")}
		raw := []byte(c.line + "\r\n")
		var now Event
		(&Parser{Location: time.UTC}).ParseAs(c.f, raw, len(c.line), &now)
		before := now
		ev.Rewrite(&before, &now)
		if ev.Level != slog.LevelWarn || !ev.HasLevel || !ev.Time.Equal(at) {
			t.Errorf("%s: the line has not changed: %+v", c.line, ev)
		}
		ev.Rewrite(&Event{}, &now)
		if !bytes.Equal(ev.Raw, raw) || string(ev.Line) != c.line || ev.Format != c.f || ev.Level != c.level || !ev.HasLevel || !ev.Time.Equal(c.time) ||
			ev.ascii != c.ascii || string(ev.levelKey) != c.is || string(ev.timeKey) != c.stamp || len(ev.More) != 1 {
			t.Errorf("%s: %+v", c.line, ev)
		}
	}
}

// Fields omits level and time only if they were read from the line. If they have another source, it
// keeps the members level and time.
func TestFieldsKeepMembersThatAreNotLevels(t *testing.T) {
	var ev Event
	(&Parser{}).Parse([]byte(`{"level":"odd","time":"soon","msg":"m"}`), &ev)
	ev.Level, ev.HasLevel, ev.Time = slog.LevelWarn, true, time.Unix(1, 0)
	if msg, attrs := ev.Fields(); msg != "m" || len(attrs) != 2 {
		t.Error(msg, attrs)
	}
}

// Elements passes each element in its raw form until yield returns false.
func TestElementsReturnsEachElement(t *testing.T) {
	for list, want := range map[string]string{`[]`: "", `[ ]`: "", `[1 , "]," ,[2,[3]],{"a":[]}, null]`: `1 "]," [2,[3]] {"a":[]} null `} {
		got := ""
		Elements([]byte(list), func(e []byte) bool { got += string(e) + " "; return true })
		if got != want {
			t.Errorf("%s: %s", list, got)
		}
	}
	n := 0
	if Elements([]byte("[1,2]"), func([]byte) bool { n++; return false }); n != 1 {
		t.Error(n)
	}
}
