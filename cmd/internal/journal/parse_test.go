package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
)

// The recorded output of a real journalctl is parsed. recorded.json is from journalctl --all of
// systemd 252. Its entries contain text, bytes, several messages, or no message.
func TestRecordedOutputOfJournalctl(t *testing.T) {
	text, err := os.ReadFile("testdata/recorded.json")
	if err != nil {
		t.Fatal(err)
	}
	var p parser
	var got []string
	before := time.Time{}
	for line := range bytes.Lines(text) {
		e, cursor, ok := p.parse(line)
		if !ok || !strings.HasPrefix(string(cursor), "s=") || e.Time.Before(before) || e.Time.Year() != 2026 {
			t.Fatalf("%s: %v, %q, %v", line, ok, cursor, e.Time)
		}
		before = e.Time
		pid := ""
		for i, a := range e.Attrs {
			if a.Key == "pid" {
				pid = a.Value.String()
				e.Attrs[i].Value = slog.StringValue("#")
			}
		}
		if pid == "" {
			t.Errorf("%s: no pid", line)
		}
		text := e.Text
		if len(text) > 200 {
			text = fmt.Appendf(nil, "%s… %d", text[:8], len(text))
		}
		got = append(got, fmt.Sprintf("%v %q %v", e.Level, text, e.Attrs))
	}
	want := []string{
		`INFO "Journal started\n" [identifier=systemd-journald pid=# host=shop-1]`,
		`INFO "System Journal (/var/log/journal/0123456789abcdef0123456789abcdef.rec) is 8.0M, max 1.1G, 1.1G free.\n" [identifier=systemd-journald pid=# host=shop-1]`,
		`INFO "hello from the shop\n" [identifier=shop pid=# host=shop-1]`,
		`WARN "disk almost full: 93%\n" [identifier=monitor pid=# host=shop-1]`,
		`ERROR "Traceback:\n  File \"a.py\", line 1\nValueError: no\n" [identifier=py pid=# host=shop-1]`,
		`INFO "bytes \xff\xfe\x00 not UTF-8\n" [identifier=bin pid=# host=shop-1]`,
		`DEBUG "\x1b[31mred\x1b[0m tab\there\n" [identifier=python3 pid=# host=shop-1]`,
		`ERROR+4 "first\nsecond\n" [identifier=twice pid=# host=shop-1]`,
		`ERROR+4 "first\nsec\xffond\n" [identifier=twicebin pid=# host=shop-1]`,
		`ERROR+4 "long xxx… 6006" [identifier=long pid=# host=shop-1]`,
		`ERROR+4 "\n" [identifier=nomessage pid=# host=shop-1]`,
		`INFO "\n" [identifier=empty pid=# host=shop-1]`,
		`INFO "{\"level\":\"error\",\"msg\":\"json in the journal\",\"user\":\"é😀 \\\" \\\\ \"}\n" [identifier=json pid=# host=shop-1]`,
		`INFO "with cr\r\n" [identifier=python3 pid=# host=shop-1]`,
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Errorf("entry %d\n got %s\nwant %s", i, append(got, make([]string, 20)...)[i], append(want, make([]string, 20)...)[i])
		}
	}
}

// Values are parsed in all forms that systemd documents for its JSON export format.
func TestParse(t *testing.T) {
	const tail = `,"__CURSOR":"c","__REALTIME_TIMESTAMP":"1700000000123456"}`
	for in, want := range map[string]string{
		`{"MESSAGE":"a","_SYSTEMD_UNIT":"shop.service","_PID":"12","_HOSTNAME":"h","_COMM":"x"` + tail:                    `"a\n" [unit=shop.service identifier=x pid=12 host=h]`,
		`{"MESSAGE":"a","_SYSTEMD_UNIT":"user@1000.service","_SYSTEMD_USER_UNIT":"app.service","SYSLOG_PID":"7"` + tail:   `"a\n" [unit=app.service pid=7]`,
		`{"MESSAGE":"Started shop.","UNIT":"shop.service","_SYSTEMD_UNIT":"init.scope","_PID":"1"` + tail:                 `"Started shop.\n" [unit=shop.service pid=1]`,
		`{"MESSAGE":"forged","UNIT":"shop.service","_SYSTEMD_UNIT":"bad.service","_PID":"2"` + tail:                       `"forged\n" [unit=bad.service pid=2]`,
		`{"_TRANSPORT":"kernel","SYSLOG_IDENTIFIER":"kernel","_KERNEL_DEVICE":"+acpi:PNP0A03:00","MESSAGE":"acpi"` + tail: `"acpi\n" [identifier=kernel]`,
		`{"MESSAGE":null` + tail: `"\n" []`, `{"MESSAGE":[]` + tail: `"\n" []`, `{"MESSAGE":[null,"b",null]` + tail: `"\nb\n" []`, `{"MESSAGE":"a\n"` + tail: `"a\n" []`,
		`{"MESSAGE":[97, 10 ,98]` + tail: `"a\nb\n" []`, `{"MESSAGE":[[97],[98]]` + tail: `"a\nb\n" []`, `{"MESSAGE":[256]` + tail: `"256\n" []`, `{"MESSAGE":[[[1]]]` + tail: `"[[1]]\n" []`, `{"MESSAGE":7` + tail: `"7\n" []`,
		`{"MESSAGE":"\u0041\ud83d\ude00"` + tail: `"A😀\n" []`,
	} {
		var p parser
		e, cursor, ok := p.parse([]byte(in + "\n"))
		if got := fmt.Sprintf("%q %v", e.Text, e.Attrs); !ok || got != want || string(cursor) != "c" || e.Time.UnixMicro() != 1_700_000_000_123_456 || e.HasLevel {
			t.Errorf("%s\n got %s\nwant %s", in, got, want)
		}
	}
	for priority, want := range map[string]slog.Level{
		`"0"`: record.Fatal, `"2"`: record.Fatal, `"3"`: slog.LevelError, `"4"`: slog.LevelWarn, `"5"`: slog.LevelInfo, `"6"`: slog.LevelInfo, `"7"`: slog.LevelDebug,
		`["3"]`: slog.LevelError, `["3","6"]`: slog.LevelError, `[[51],"6"]`: slog.LevelError, `[51]`: slog.LevelError, // values of a field that occurs several times
	} {
		var p parser
		if e, _, _ := p.parse([]byte(`{"PRIORITY":` + priority + tail)); !e.HasLevel || e.Level != want {
			t.Errorf("%s: %v", priority, e.Level)
		}
	}
	for _, in := range []string{"", "{}", "[]", "x", `{"__CURSOR":""}`, `{"__CURSOR":"c"`, `{"__CURSOR":"c"} {}`} {
		var p parser
		if _, _, ok := p.parse([]byte(in)); ok {
			t.Errorf("%s was accepted as an entry", in)
		}
	}
	for _, priority := range []string{"8", "-1", "", "66", "x"} {
		var p parser
		if e, _, _ := p.parse([]byte(`{"PRIORITY":"` + priority + `"` + tail)); e.HasLevel {
			t.Errorf("%s: %v", priority, e.Level)
		}
	}
}

func TestAllFieldsFollowKnownOnes(t *testing.T) {
	p := parser{all: true}
	const in = `{"PRIORITY":"6","CODE_LINE":"42","_PID":"1","MESSAGE":"a","X":["a","b"],"_SYSTEMD_UNIT":"u","__CURSOR":"c","__REALTIME_TIMESTAMP":"1","__MONOTONIC_TIMESTAMP":"2","__SEQNUM":"3"}`
	for range 2 {
		if e, _, _ := p.parse([]byte(in)); fmt.Sprintf("%q", fmt.Sprint(e.Attrs)) != `"[unit=u pid=1 CODE_LINE=42 _PID=1 X=a\nb _SYSTEMD_UNIT=u]"` {
			t.Errorf("%q", e.Attrs)
		}
	}
}

func TestParseDoesNotAllocate(t *testing.T) {
	var p parser
	line := []byte(entry(7))
	if n := allocs.PerRun(100, func() { p.parse(line) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	for i := range 10 * maxInterned { // more than the cache of intern can hold
		p.intern(fmt.Appendf(nil, `"%d"`, i))
	}
	if len(p.names) > maxInterned {
		t.Errorf("%d texts are cached, want at most %d", len(p.names), maxInterned)
	}
}

// Whatever the line, parse does not panic. The text of an entry equals the field MESSAGE as
// encoding/json decodes it. A new parser returns the same entry.
func FuzzParse(f *testing.F) {
	text, err := os.ReadFile("testdata/recorded.json")
	if err != nil {
		f.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		if len(line) < 2000 {
			f.Add(line, false)
		}
	}
	f.Add([]byte(`{"MESSAGE":[[1,2],"a",null,[]],"__CURSOR":"c"}`), true)
	f.Fuzz(func(t *testing.T, line []byte, all bool) {
		p := parser{all: all}
		e, cursor, ok := p.parse(line)
		if !ok {
			return
		}
		if len(cursor) == 0 || len(e.Text) == 0 || e.Text[len(e.Text)-1] != '\n' {
			t.Fatalf("%q: %q, %q", line, cursor, e.Text)
		}
		members := 0
		record.Members(bytes.TrimSpace(line), 0, func(m record.Member) bool { members++; return true })
		var fields map[string]any
		if json.Unmarshal(line, &fields) != nil || len(fields) != members {
			return // skip objects with duplicate keys
		}
		if s, ok := fields["MESSAGE"].(string); ok && bytes.Contains(line, []byte(`"MESSAGE"`)) && !strings.ContainsRune(s, '\ufffd') && strings.TrimSuffix(s, "\n")+"\n" != string(e.Text) {
			t.Fatalf("%q: %q", line, e.Text)
		}
		again := parser{all: all}
		if f, _, _ := again.parse(line); !bytes.Equal(f.Text, e.Text) || fmt.Sprint(f.Attrs) != fmt.Sprint(e.Attrs) {
			t.Fatalf("%q: %v and %v", line, e, f)
		}
	})
}
