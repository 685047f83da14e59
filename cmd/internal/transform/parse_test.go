package transform

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
	"github.com/forebay-log/forebay/internal/testkit/race"
)

// show returns the line, the level, the time and the attributes of ev as text.
func show(ev *record.Event) string {
	var b strings.Builder
	b.Write(ev.Line)
	if ev.HasLevel {
		fmt.Fprintf(&b, " | %v", ev.Level)
	}
	if !ev.Time.IsZero() {
		b.WriteString(" | " + ev.Time.UTC().Format(time.RFC3339Nano))
	}
	for _, a := range ev.More {
		fmt.Fprintf(&b, " %s=%s:%v", a.Key, a.Value.Kind(), a.Value)
	}
	return b.String()
}

// parserOf2026 returns a parser that assumes the year 2026 for times without a year.
func parserOf2026() *record.Parser {
	return &record.Parser{Location: time.UTC, Now: func() time.Time { return time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC) }}
}

// The fields, the time and the level are extracted from lines of each format.
func TestParseExtractsFieldsOfFormats(t *testing.T) {
	const combined = `203.0.113.9 - alice [10/Oct/2025:13:55:36 +0200] "GET /a?b=%22c HTTP/1.1" 502 2326 "https://example.com/" "Mozilla/5.0 (X11; \"quoted\")"`
	for _, c := range []struct{ format, line, want string }{
		{"nginx", combined, combined + ` | ERROR | 2025-10-10T11:55:36Z client=String:203.0.113.9 user=String:alice method=String:GET path=String:/a?b=%22c protocol=String:HTTP/1.1 status=Int64:502 bytes=Int64:2326 referer=String:https://example.com/ agent=String:Mozilla/5.0 (X11; \"quoted\")`},
		{"nginx", combined + ` 0.034 "-"`, combined + ` 0.034 "-" | ERROR | 2025-10-10T11:55:36Z client=String:203.0.113.9 user=String:alice method=String:GET path=String:/a?b=%22c protocol=String:HTTP/1.1 status=Int64:502 bytes=Int64:2326 referer=String:https://example.com/ agent=String:Mozilla/5.0 (X11; \"quoted\")`},
		{"nginx", `::1 - - [10/Oct/2025:13:55:36 +0000] "\x16\x03\x01" 400 150 "-" "-"`,
			`::1 - - [10/Oct/2025:13:55:36 +0000] "\x16\x03\x01" 400 150 "-" "-" | WARN | 2025-10-10T13:55:36Z client=String:::1 request=String:\x16\x03\x01 status=Int64:400 bytes=Int64:150`},
		{"nginx", `::1 - - [10/Oct/2025:13:55:36 +0000] "" 400 0 "-" ""`, // an empty request line, as sent by a port scan
			`::1 - - [10/Oct/2025:13:55:36 +0000] "" 400 0 "-" "" | WARN | 2025-10-10T13:55:36Z client=String:::1 status=Int64:400 bytes=Int64:0`},
		{"nginx", `::1 - j doe [10/Oct/2025:13:55:36 +0000] "GET / HTTP/2.0" 200 1`,
			`::1 - j doe [10/Oct/2025:13:55:36 +0000] "GET / HTTP/2.0" 200 1 | INFO | 2025-10-10T13:55:36Z client=String:::1 user=String:j doe method=String:GET path=String:/ protocol=String:HTTP/2.0 status=Int64:200 bytes=Int64:1`},
		{"apache", `a.example:80 10.0.0.1 - - [10/Oct/2025:13:55:36 +0000] "\x16\x03" 400 0 "-" "-"`,
			`a.example:80 10.0.0.1 - - [10/Oct/2025:13:55:36 +0000] "\x16\x03" 400 0 "-" "-" | WARN | 2025-10-10T13:55:36Z vhost=String:a.example:80 client=String:10.0.0.1 request=String:\x16\x03 status=Int64:400 bytes=Int64:0`},
		{"mysql", `2025-10-10 13:55:36 140 [ERROR] mariadbd: Aborting`, `mariadbd: Aborting | ERROR | 2025-10-10T13:55:36Z thread=Int64:140`},
		{"nginx", `2025/10/10 13:55:36 [error] 31#29: *7 open() "/x" failed (2: No such file), client: 1.2.3.4`,
			`open() "/x" failed (2: No such file), client: 1.2.3.4 | ERROR | 2025-10-10T13:55:36Z pid=Int64:31 tid=Int64:29 connection=Int64:7 client=String:1.2.3.4`},
		{"nginx", `2025/10/10 13:55:36 [error] 31#29: *7 open() "/x" failed (2: No such file), client: 172.17.0.1, server: _, request: "GET /x HTTP/1.1"`,
			`open() "/x" failed (2: No such file), client: 172.17.0.1, server: _, request: "GET /x HTTP/1.1" | ERROR | 2025-10-10T13:55:36Z pid=Int64:31 tid=Int64:29 connection=Int64:7 client=String:172.17.0.1`},
		{"nginx", `2025/10/10 13:55:36 [info] 31#29: *7 closed keepalive connection`, `closed keepalive connection | INFO | 2025-10-10T13:55:36Z pid=Int64:31 tid=Int64:29 connection=Int64:7`},
		{"nginx", `2025/10/10 13:55:36 [notice] 1#1: start worker processes`, `start worker processes | INFO | 2025-10-10T13:55:36Z pid=Int64:1 tid=Int64:1`},
		{"apache", `127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 -`,
			`127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 - | INFO | 2000-10-10T20:55:36Z client=String:127.0.0.1 user=String:frank method=String:GET path=String:/apache_pb.gif protocol=String:HTTP/1.0 status=Int64:200`},
		{"apache", `[Fri Sep 09 10:42:29.902022 2011] [core:error] [pid 35708:tid 4328636416] [client 72.15.99.187:51234] File does not exist: /x`,
			`File does not exist: /x | ERROR | 2011-09-09T10:42:29.902022Z module=String:core pid=Int64:35708 tid=Int64:4328636416 client=String:72.15.99.187:51234`},
		{"apache", `[Fri Sep 09 10:42:29.902022 2011] [core:error] [pid 35708:tid 4328636416] (13)Permission denied: [client 1.2.3.4:5] AH00035: access to /x denied`,
			`(13)Permission denied: [client 1.2.3.4:5] AH00035: access to /x denied | ERROR | 2011-09-09T10:42:29.902022Z module=String:core pid=Int64:35708 tid=Int64:4328636416 client=String:1.2.3.4:5`},
		{"apache", `[Fri Sep 09 10:42:29 2011] [error] (13)Permission denied: [client 1.2.3.4] access denied`,
			`(13)Permission denied: [client 1.2.3.4] access denied | ERROR | 2011-09-09T10:42:29Z client=String:1.2.3.4`},
		{"haproxy", `Feb  6 12:14:14 lb haproxy[14389]: 10.0.1.2:33317 [06/Feb/2025:12:14:14.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu} {} "GET /index.html HTTP/1.1"`,
			`Feb  6 12:14:14 lb haproxy[14389]: 10.0.1.2:33317 [06/Feb/2025:12:14:14.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu} {} "GET /index.html HTTP/1.1" | INFO | 2025-02-06T12:14:14.655Z pid=Int64:14389 client=String:10.0.1.2:33317 frontend=String:http-in backend=String:static server=String:srv1 duration_ms=Int64:109 status=Int64:200 bytes=Int64:2750 termination=String:---- method=String:GET path=String:/index.html protocol=String:HTTP/1.1`},
		{"haproxy", `10.0.1.2:33317 [06/Feb/2025:12:14:14.655] http-in~ http-in/<NOSRV> -1/-1/-1/-1/0 408 212 - - cR-- 2/2/0/0/0 0/0 "<BADREQ>"`,
			`10.0.1.2:33317 [06/Feb/2025:12:14:14.655] http-in~ http-in/<NOSRV> -1/-1/-1/-1/0 408 212 - - cR-- 2/2/0/0/0 0/0 "<BADREQ>" | WARN | 2025-02-06T12:14:14.655Z client=String:10.0.1.2:33317 frontend=String:http-in~ backend=String:http-in server=String:<NOSRV> duration_ms=Int64:0 status=Int64:408 bytes=Int64:212 termination=String:cR-- request=String:<BADREQ>`},
		{"haproxy", `10.0.1.2:33313 [06/Feb/2025:12:12:51.443] fnt bck/srv1 0/0/5007 212 -- 0/0/0/0/3 0/0`,
			`10.0.1.2:33313 [06/Feb/2025:12:12:51.443] fnt bck/srv1 0/0/5007 212 -- 0/0/0/0/3 0/0 | 2025-02-06T12:12:51.443Z client=String:10.0.1.2:33313 frontend=String:fnt backend=String:bck server=String:srv1 duration_ms=Int64:5007 bytes=Int64:212 termination=String:--`},
		{"postgres", `2025-10-10 13:55:36.123 UTC [4211] app@shop ERROR:  duplicate key value violates unique constraint "k"`,
			`duplicate key value violates unique constraint "k" | ERROR | 2025-10-10T13:55:36.123Z pid=Int64:4211 user=String:app database=String:shop`},
		{"postgres", `2025-10-10 13:55:36.123 UTC [1] LOG:  database system is ready to accept connections`,
			`database system is ready to accept connections | INFO | 2025-10-10T13:55:36.123Z pid=Int64:1`},
		{"mysql", `2025-10-10T13:55:36.123456Z 0 [Warning] [MY-010068] [Server] CA certificate ca.pem is self signed.`,
			`CA certificate ca.pem is self signed. | WARN | 2025-10-10T13:55:36.123456Z thread=Int64:0 code=String:MY-010068 subsystem=String:Server`},
		{"redis", `1:M 10 Oct 2025 13:55:36.123 # Server initialized`, `Server initialized | WARN | 2025-10-10T13:55:36.123Z pid=Int64:1 role=String:M`},
		{"klog", `E1010 13:55:36.123456    4211 reflector.go:127] watch of *v1.Pod ended`,
			`watch of *v1.Pod ended | ERROR | 2026-10-10T13:55:36.123456Z pid=Int64:4211 source=String:reflector.go line=Int64:127`},
		{"syslog", `Oct  9 13:55:36 web1 sshd[811]: Accepted publickey for root`, `Accepted publickey for root | 2026-10-09T13:55:36Z host=String:web1 procid=String:811 app=String:sshd`},
		{"syslog", `<165>1 2025-10-10T13:55:36.003Z web1 su - ID47 [x@1 a="b"] failed`,
			`failed | INFO | 2025-10-10T13:55:36.003Z facility=String:local4 severity=String:notice host=String:web1 msgid=String:ID47 app=String:su x@1.a=String:b`},
		{"syslog", "<13>1 2025-10-10T13:55:36Z web1 su 7 - [a@1 k=\"1\"][b@2 k=\"] 2\"] \ufefffailed",
			`failed | INFO | 2025-10-10T13:55:36Z facility=String:user severity=String:notice host=String:web1 procid=String:7 app=String:su a@1.k=String:1 b@2.k=String:] 2`},
		{"syslog", `<13>1 2025-10-10T13:55:36Z web1 su 7 - [a@1 k="1"]`,
			` | INFO | 2025-10-10T13:55:36Z facility=String:user severity=String:notice host=String:web1 procid=String:7 app=String:su a@1.k=String:1`},
		{"syslog", `<13>1 - - - - - -`, ` | INFO facility=String:user severity=String:notice`},
		{"syslog", `<34>Oct 11 22:14:15 web1 su: failed`, `failed | ERROR+4 | 2026-10-11T22:14:15Z facility=String:auth severity=String:crit host=String:web1 app=String:su`},
	} {
		ch, faults := New([]Rule{{Parse: &Parse{Format: c.format, OnError: "tag"}}}, parserOf2026())
		if faults != nil {
			t.Fatal(faults)
		}
		var ev record.Event
		parserOf2026().Parse([]byte(c.line), &ev)
		if out := ch.Apply(&ev); out != Kept || show(&ev) != c.want {
			t.Errorf("%s: %q\n got %s\nwant %s", c.format, c.line, show(&ev), c.want)
		}
	}
}

// A line that does not have the format of the rule is kept unchanged, dropped or tagged, as OnError
// requires.
func TestParseOtherText(t *testing.T) {
	lines := []string{"", " ", "hello world", "-", "a b c d e f g h", `"`, "[x] y", "2025-10-10 13:55:36 [4] WHAT:  x", `1.2.3.4 - - [x] "GET`}
	for _, f := range ParseFormats() {
		for _, line := range lines {
			for _, on := range onError {
				ev := parse(record.Text, line)
				before := show(ev)
				out := chain(t, Rule{Parse: &Parse{Format: f, OnError: on}}).Apply(ev)
				want, wantOut := before, Kept
				if on == "tag" {
					want += " parse_error=String:" + f
				} else if on == "drop" {
					wantOut = Removed
				}
				if out != wantOut || show(ev) != want {
					t.Errorf("format %s, line %q, OnError %s: got %v %q, want %v %q", f, line, on, out, show(ev), wantOut, want)
				}
			}
		}
	}
}

func TestParseExtractsGroupsOfRegex(t *testing.T) {
	for _, c := range []struct {
		parse    Parse
		in, want string
	}{
		{Parse{Regex: `user=(?P<user>\w+) took=(?P<took>[\d.]+)`, Types: []Pair{{"took", "float"}}}, "login user=bob took=1.5", "login user=bob took=1.5 user=String:bob took=Float64:1.5"},
		{Parse{Regex: `(?P<n>\S+) (?P<ok>\S+)(?P<opt> x)?$`, Types: []Pair{{"n", "int"}, {"ok", "bool"}}}, "many true", "many true n=String:many ok=Bool:true"},
		{Parse{Regex: `^(?P<at>\S+) (?P<sev>\w+) (?P<msg>.*)`, Time: "at", Level: "sev", TimeLayout: "02.01.2006T15.04"}, "10.10.2025T13.55 WARNING low disk", "low disk | WARN | 2025-10-10T13:55:00Z"},
		{Parse{Regex: `^(?P<time>\S+) (?P<level>\w+) (?P<message>.*)`}, "2025-10-10T13:55:00Z nonsense low disk", "low disk | 2025-10-10T13:55:00Z level=String:nonsense"},
		{Parse{Regex: `(?P<a>x)`}, "no match", "no match"},
	} {
		ev := parse(record.Text, c.in)
		chain(t, Rule{Parse: &c.parse}).Apply(ev)
		if show(ev) != c.want {
			t.Errorf("%+v of %q:\n got %s\nwant %s", c.parse, c.in, show(ev), c.want)
		}
	}
}

// Fields from JSON and logfmt lines are added to the line. The formats json and logfmt can also
// decode a text in a field of the line.
func TestParseFieldOfLine(t *testing.T) {
	for _, c := range []struct {
		parse    Parse
		in, want string
	}{
		{Parse{Format: "postgres", Field: "log"}, `{"log":"2025-10-10 13:55:36.123 UTC [7] LOG:  ready","stream":"stderr"}`,
			`{"log":"2025-10-10 13:55:36.123 UTC [7] LOG:  ready","stream":"stderr","pid":7,"msg":"ready","level":"INFO","time":"2025-10-10T13:55:36.123Z"} | INFO | 2025-10-10T13:55:36.123Z`},
		{Parse{Format: "json", Field: "log"}, `{"log":"{\"msg\":\"hi\",\"n\":1.10,\"o\":{\"p\":null},\"level\":\"warn\"}\n","msg":"old"}`,
			`{"log":"{\"msg\":\"hi\",\"n\":1.10,\"o\":{\"p\":null},\"level\":\"warn\"}\n","msg":"hi","n":1.10,"o":{"p":null},"level":"warn"} | WARN`},
		{Parse{Format: "logfmt", Field: "log"}, `{"log":"level=error n=12 s=\"a b\" t=true"}`, `{"log":"level=error n=12 s=\"a b\" t=true","level":"error","n":12,"s":"a b","t":true} | ERROR`},
		{Parse{Format: "syslog", Field: "log"}, `{"log":"<13>1 - h su - - [x@1 k=\"1\"] m"}`,
			`{"log":"<13>1 - h su - - [x@1 k=\"1\"] m","facility":"user","severity":"notice","host":"h","app":"su","x@1.k":"1","msg":"m","level":"INFO"} | INFO`},
		{Parse{Format: "json"}, `{"k":"v","level":"warn"}`, `{"k":"v","level":"warn"} | WARN`},
		{Parse{Regex: `(?P<code>\d+)`, Types: []Pair{{"code", "int"}}}, `level=info msg="code 12"`, `level=info msg="code 12" code=12 | INFO`},
	} {
		f := record.Auto
		if c.parse.Format == "json" && c.parse.Field == "" {
			f = record.Text
		}
		ev := parse(f, c.in)
		chain(t, Rule{Parse: &c.parse}).Apply(ev)
		if show(ev) != c.want {
			t.Errorf("%+v of %q:\n got %s\nwant %s", c.parse, c.in, show(ev), c.want)
		}
	}
}

// The formats json and logfmt match a line that the input has already decoded, even if the message
// is plain text or missing.
func TestParseDecodedLine(t *testing.T) {
	for _, in := range []struct{ format, line string }{
		{"json", `{"msg":"plain text","n":1}`}, {"json", `{"n":1}`}, {"logfmt", `level=info msg="plain text"`}, {"logfmt", `level=info n=1`},
	} {
		for _, on := range onError {
			ev := parse(record.Auto, in.line)
			want := show(ev)
			if out := chain(t, Rule{Parse: &Parse{Format: in.format, OnError: on}}).Apply(ev); out != Kept || show(ev) != want {
				t.Errorf("%s, %s: %v %q", in.line, on, out, show(ev))
			}
		}
	}
	ev := parse(record.Auto, `{"msg":"x","log":"plain text"}`)
	if out := chain(t, Rule{Parse: &Parse{Format: "json", Field: "log", OnError: "drop"}}).Apply(ev); out != Removed {
		t.Error("a field with plain text matches the format json")
	}
}

// If the input has set the level and the time, a text format keeps both, but replaces the level if
// the format defines its own levels. The formats json and logfmt, a regular expression, and a text
// format for a field replace both.
func TestParseAfterProtocol(t *testing.T) {
	const replaced, kept = "2025-10-10T13:55:36Z", "2020-01-01T00:00:00Z"
	for _, c := range []struct {
		parse Parse
		in    string
		level slog.Level
		time  string
	}{
		{Parse{Format: "nginx"}, "2025/10/10 13:55:36 [error] 1#1: x", slog.LevelDebug, kept},
		{Parse{Format: "nginx"}, `::1 - - [10/Oct/2025:13:55:36 +0000] "GET / HTTP/2.0" 500 1`, slog.LevelDebug, kept},
		{Parse{Format: "klog"}, "E1010 13:55:36.123456 1 a.go:1] x", slog.LevelDebug, kept},
		{Parse{Format: "syslog"}, "<11>1 2025-10-10T13:55:36Z h a - - - x", slog.LevelDebug, kept},
		{Parse{Format: "postgres"}, "2025-10-10 13:55:36 UTC [1] ERROR:  x", slog.LevelError, kept},
		{Parse{Format: "json"}, `{"level":"error","time":"2025-10-10T13:55:36Z"}`, slog.LevelError, replaced},
		{Parse{Format: "logfmt"}, "level=error time=2025-10-10T13:55:36Z", slog.LevelError, replaced},
		{Parse{Regex: `(?P<time>\S+) (?P<level>\S+)`}, "2025-10-10T13:55:36Z error", slog.LevelError, replaced},
		{Parse{Format: "nginx", Field: "f"}, "", slog.LevelError, replaced},
	} {
		ev := parse(record.Text, c.in, slog.String("f", "2025/10/10 13:55:36 [error] 1#1: x"))
		ev.Level, ev.HasLevel, ev.Time = slog.LevelDebug, true, time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
		ch, _ := New([]Rule{{Parse: &c.parse}}, parserOf2026())
		if ch.Apply(ev); ev.Level != c.level || ev.Time.UTC().Format(time.RFC3339) != c.time {
			t.Errorf("%+v: %v at %v", c.parse, ev.Level, ev.Time)
		}
	}
}

// A parsed line keeps its end, "\n" or "\r\n".
func TestParseKeepsTheEndOfLine(t *testing.T) {
	for format, in := range map[string]string{"json": "{\"a\":1}\r\n", "logfmt": "level=info a=1\n", "redis": "1:M 10 Oct 2025 13:55:36.123 # up\n"} {
		ev := parse(record.Text, in)
		c := chain(t, Rule{Parse: &Parse{Format: format, OnError: "drop"}}, Rule{Set: []Setting{{"b", "x"}}})
		if c.Apply(ev) != Kept || string(ev.Raw[len(ev.Line):]) != in[len(strings.TrimRight(in, "\r\n")):] {
			t.Errorf("%s: %q of %q", format, ev.Raw, in)
		}
	}
}

// Fields that Parse has extracted do not change when later rules replace the line.
func TestParseThenEdit(t *testing.T) {
	c := chain(t,
		Rule{Set: []Setting{{"msg", "one two three"}}},
		Rule{Parse: &Parse{Regex: `(?P<a>\w+) (?P<b>\w+)`}},
		Rule{Set: []Setting{{"msg", "XXXXXXXXXXXXXX"}}}, Rule{Set: []Setting{{"msg", "YYYYYYYYYYYYYY"}}},
		Rule{Parse: &Parse{Regex: `(?P<c>Y+)`}})
	for range 3 {
		ev := parse(record.Text, "in")
		if c.Apply(ev); show(ev) != "YYYYYYYYYYYYYY a=String:one b=String:two c=String:YYYYYYYYYYYYYY" {
			t.Error(show(ev))
		}
	}
}

func TestParseReportsFaults(t *testing.T) {
	for _, c := range []struct {
		rule Rule
		want string
	}{
		{Rule{Parse: &Parse{}}, "rule 1: parse: write either a regex or a format"},
		{Rule{Parse: &Parse{Regex: "(?P<a>x)", Format: "nginx"}}, "rule 1: parse: write either a regex or a format"},
		{Rule{Parse: &Parse{Format: "ngnix"}}, `rule 1: parse.format: "ngnix" is not one of apache, haproxy, json, klog, logfmt, mysql, nginx, postgres, redis, syslog`},
		{Rule{Parse: &Parse{Format: "nginx", Time: "x"}}, "rule 1: parse: types, time, level and time-layout belong to a regex; the format nginx defines them"},
		{Rule{Parse: &Parse{Regex: "ä(?P<a>x"}}, "rule 1: parse.regex: column 2: missing closing ): \"ä(?P<a>x\""},
		{Rule{Parse: &Parse{Regex: "(?P<a>[z-a])"}}, "rule 1: parse.regex: column 8: invalid character class range: \"z-a\""},
		{Rule{Parse: &Parse{Regex: "x(?=y)"}}, "rule 1: parse.regex: column 2: invalid or unsupported Perl syntax: \"(?=\""},
		{Rule{Parse: &Parse{Regex: "(?P<a>x))"}}, "rule 1: parse.regex: column 9: unexpected ): \"(?P<a>x))\""},
		{Rule{Parse: &Parse{Regex: `[])]\)\Q)\E[[:alpha:])])(?P<a>x)`}}, "rule 1: parse.regex: column 24: unexpected ): \"[])]\\\\)\\\\Q)\\\\E[[:alpha:])])(?P<a>x)\""},
		{Rule{Parse: &Parse{Regex: `abc\`}}, `rule 1: parse.regex: column 4: trailing backslash at end of expression: "\\"`},
		{Rule{Parse: &Parse{Regex: "ä(?P<a>x)(?P<a>y)"}}, "rule 1: parse.regex: column 10: two groups have the name a"},
		{Rule{Parse: &Parse{Regex: "(?P<a>x)(?<a>y)"}}, "rule 1: parse.regex: column 9: two groups have the name a"},
		{Rule{Parse: &Parse{Regex: "x+"}}, "rule 1: parse.regex: it has no named group; write (?P<status>[0-9]+) for a field status"},
		{Rule{Parse: &Parse{Regex: "(?P<a>x)", OnError: "panic"}}, `rule 1: parse.on_error: "panic" is not one of keep, drop, tag`},
		{Rule{Parse: &Parse{Regex: "(?P<a>x)", Types: []Pair{{"b", "int"}}}}, "rule 1: parse.types[0]: the expression has no group b"},
		{Rule{Parse: &Parse{Regex: "(?P<a>x)", Types: []Pair{{"a", "date"}}}}, `rule 1: parse.types[0]: "date" is not one of int, float, bool`},
		{Rule{Parse: &Parse{Regex: "(?P<a>x)", Time: "at"}}, "rule 1: parse.time: the expression has no group at"},
		{Rule{Parse: &Parse{Regex: "(?P<a>x)", TimeLayout: "2006"}}, "rule 1: parse.time_layout: the expression has no group for the time; name one with time"},
		{Rule{Parse: &Parse{Regex: "(?P<time>x)", TimeLayout: "%Y"}}, `rule 1: parse.time_layout: "%Y" has no part of a time; write it as package time does: 2006-01-02 15:04:05`},
		{Rule{Limit: &Limit{}}, "rule 1: limit.per_second: 0: use the number of records per second, such as 100"},
		{Rule{Limit: &Limit{PerSecond: 1, Burst: -1}}, "rule 1: limit.burst: -1: use 1 or more"},
	} {
		_, faults := New([]Rule{c.rule}, nil)
		if len(faults) != 1 || faults[0].Error() != c.want {
			t.Errorf("%v\nwant %s", faults, c.want)
		}
	}
}

func TestDecolorizeRemovesEscapeSequences(t *testing.T) {
	c := chain(t, Rule{Decolorize: true})
	for in, want := range map[string]string{
		"\x1b[31;1mERROR\x1b[0m disk full": "ERROR disk full | ERROR",
		"plain":                            "plain",
		"a\x1b]8;;http://x\x1b\\link\x1b]8;;\x07 b\x1b(B": "alink b",
		"cut \x1b[3":                            "cut ",
		"\x1bMx\x1b":                            "x",
		"\x1b]unterminated":                     "unterminated",
		`{"msg":"\u001b[32mok\u001b[0m","n":1}`: `{"msg":"ok","n":1}`,
		"level=warn msg=\"\x1b[32mok\x1b[0m\"":  "level=warn msg=\"ok\" | WARN",
	} {
		ev := parse(record.Auto, in)
		if c.Apply(ev); show(ev) != want {
			t.Errorf("%q: %q, want %q", in, show(ev), want)
		}
	}
}

// For each value of Limit.By, a Limit passes a burst at once, and after that only as many records
// as PerSecond allows.
func TestLimitPassesBurstThenRate(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := chain(t, Rule{Limit: &Limit{PerSecond: 10, Burst: 5, By: "k"}})
		pass := func(key string, n int) (passed int) {
			for range n {
				if c.Clone().Apply(parse(record.JSON, `{"k":"`+key+`"}`)) == Kept {
					passed++
				}
			}
			return passed
		}
		if a, b := pass("a", 100), pass("b", 3); a != 5 || b != 3 {
			t.Errorf("%d and %d pass at once, want 5 and 3", a, b)
		}
		time.Sleep(250 * time.Millisecond)
		if a := pass("a", 100); a != 2 {
			t.Errorf("%d pass after 250 ms, want 2", a)
		}
		time.Sleep(time.Hour)
		if a := pass("a", 100); a != 5 {
			t.Errorf("%d pass after an hour, want 5", a)
		}
	})
}

// At most limitKeys values of Limit.By have a separate rate, and all further values share one rate.
// Idle values are removed.
func TestLimitManyKeys(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := chain(t, Rule{Limit: &Limit{PerSecond: 1, By: "k"}})
		n := 0
		for i := range limitKeys + 100 {
			if c.Apply(parse(record.JSON, fmt.Sprintf(`{"k":"%d"}`, i))) == Kept {
				n++
			}
		}
		l := c.rules[0].limit
		if n < limitKeys || n > limitKeys+1 || len(l.buckets) > limitKeys+1 {
			t.Errorf("%d of %d pass, %d keys", n, limitKeys+100, len(l.buckets))
		}
		time.Sleep(time.Minute)
		if c.Apply(parse(record.JSON, `{"k":"new"}`)) != Kept || len(l.buckets) != 1 {
			t.Errorf("%d keys after a minute", len(l.buckets))
		}
	})
}

// Parsing a record does not allocate after the buffers of the chain have grown.
func TestParseDoesNotAllocate(t *testing.T) {
	race.Skip(t)
	line := []byte(`203.0.113.9 - alice [10/Oct/2025:13:55:36 +0200] "GET /a HTTP/1.1" 200 2326 "-" "curl/8.5.0"`)
	c := chain(t, Rule{Parse: &Parse{Format: "nginx"}}, Rule{Decolorize: true}, Rule{Limit: &Limit{PerSecond: 1e9}})
	p := &record.Parser{Location: time.UTC}
	var ev record.Event
	if n := allocs.PerRun(1000, func() {
		p.Parse(line, &ev)
		c.Apply(&ev)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// For any line, Parse does not panic. It keeps JSON valid, and extracts only values that are in the
// line.
func FuzzParse(f *testing.F) {
	f.Add(`203.0.113.9 - alice [10/Oct/2025:13:55:36 +0200] "GET /a HTTP/1.1" 200 2326 "-" "curl/8.5.0"`)
	f.Add(`<165>1 2025-10-10T13:55:36.003Z web1 su - ID47 [x@1 a="b"] failed`)
	f.Add(`{"msg":"{\"a\":1}","log":"a=1 b=\"c\""}`)
	f.Add("\x1b[31mE1010 13:55:36.123456 1 a.go:1] x\x1b[0m")
	f.Fuzz(func(t *testing.T, line string) {
		var rules []Rule
		for _, name := range ParseFormats() {
			rules = append(rules, Rule{Parse: &Parse{Format: name, OnError: "tag"}}, Rule{Parse: &Parse{Format: name, Field: "log"}})
		}
		rules = append(rules, Rule{Decolorize: true}, Rule{Parse: &Parse{Regex: `(?P<a>\w+)[= ](?P<b>.*)`, Types: []Pair{{"b", "float"}}}})
		for i := range rules {
			ev := parse(record.Auto, line)
			before, format := bytes.Clone(ev.Line), ev.Format
			chain(t, rules[i]).Apply(ev)
			if ev.Format == record.JSON && (!json.Valid(ev.Line) && json.Valid(before)) {
				t.Errorf("%+v changed %q to the invalid JSON %q", rules[i], before, ev.Line)
			}
			if format == record.Text && ev.Format == record.Text && rules[i].Parse != nil && rules[i].Parse.Format != "syslog" { // the format syslog converts numbers to names and removes escapes
				for _, a := range ev.More {
					if a.Value.Kind() == slog.KindString && a.Key != parseErrorField && !strings.Contains(line, a.Value.String()) && utf8.ValidString(line) {
						t.Errorf("%+v: %v is not in %q", rules[i], a, line)
					}
				}
			}
		}
	})
}

func BenchmarkParse(b *testing.B) {
	line := []byte(`203.0.113.9 - - [10/Oct/2025:13:55:36 +0200] "GET /api/v1/orders?page=2 HTTP/1.1" 200 2326 "https://example.com/" "Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0"`)
	p := &record.Parser{Location: time.UTC}
	for _, format := range []string{"nginx", "regex"} {
		rule := Parse{Format: format}
		if format == "regex" {
			rule = Parse{Regex: `^(?P<client>\S+) \S+ (?P<user>\S+) \[(?P<time>[^\]]+)\] "(?P<method>\S+) (?P<path>\S+) (?P<protocol>[^"]+)" (?P<status>\d+) (?P<bytes>\d+)`, Types: []Pair{{"status", "int"}, {"bytes", "int"}}}
		}
		c := chain(b, Rule{Parse: &rule})
		b.Run(format, func(b *testing.B) {
			b.SetBytes(int64(len(line)))
			b.ReportAllocs()
			var ev record.Event
			for b.Loop() {
				p.Parse(line, &ev)
				c.Apply(&ev)
			}
		})
	}
}
