package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/encode"
)

// parse returns the event of a line. Times without a zone are in UTC, and Parser.Now is nil.
func parse(f Format, line string) Event {
	p := Parser{Format: f, Location: time.UTC}
	var ev Event
	p.Parse([]byte(line), &ev)
	return ev
}

// Parse detects the format of a line, or accepts the expected one.
func TestFormatOfLines(t *testing.T) {
	for _, c := range []struct {
		line string
		want Format
	}{
		{`{"a":1}`, JSON},
		{"  {\"a\":1} \r\n", JSON},
		{`{}`, JSON},
		{`{"a":1`, Text},
		{`{"a":1} trailing`, Text},
		{`{not json}`, Text},
		{`[1,2]`, Text},
		{`"string"`, Text},
		{`12`, Text},
		{``, Text},
		{"\n", Text},
		{`level=info msg="a b" n=1`, Logfmt},
		{`msg=x`, Logfmt},
		{`a=1 b=2`, Logfmt},
		{`x=1`, Text},             // a single assignment of an unknown key
		{`set a=1 b=2`, Text},     // a word before the pairs
		{`a=1 b="open`, Text},     // an unterminated string
		{`a="x"y b=2`, Text},      // no space after the string
		{`if a == b then`, Text},  // an equals sign without a key
		{`"q"=1 b=2`, Text},       // a quoted key
		{"a=1\x00 b=2", Text},     // a control character
		{`GET /?a=1&b=2 x`, Text}, // words without a value
	} {
		if got := parse(Auto, c.line).Format; got != c.want {
			t.Errorf("%q is %v, want %v", c.line, got, c.want)
		}
	}
	// A parser with an expected format accepts more lines than Auto and loses no data.
	for _, c := range []struct {
		f        Format
		line     string
		want     Format
		unparsed uint64
	}{
		{JSON, `{"a":1}`, JSON, 0}, {JSON, `a=1 b=2`, Text, 1}, {JSON, `plain`, Text, 1},
		{Logfmt, `x=1`, Logfmt, 0}, {Logfmt, `started x=1`, Logfmt, 0}, {Logfmt, `plain`, Text, 1}, {Logfmt, `{"a":1}`, Text, 1},
		{Text, `{"a":1}`, Text, 0}, {Text, `a=1 b=2`, Text, 0},
	} {
		p := Parser{Format: c.f}
		var ev Event
		p.Parse([]byte(c.line), &ev)
		if ev.Format != c.want || p.Unparsed != c.unparsed {
			t.Errorf("as %v, %q is %v, Unparsed %d", c.f, c.line, ev.Format, p.Unparsed)
		}
	}
}

// Parse finds the level of lines of many loggers, and none in prose.
func TestLevel(t *testing.T) {
	const none = slog.Level(99)
	for line, want := range map[string]slog.Level{
		// JSON of different loggers
		`{"time":"x","level":"INFO","msg":"m"}`:     slog.LevelInfo,
		`{"level":"WARN+2"}`:                        slog.LevelWarn + 2,
		`{"level":"dpanic"}`:                        Fatal,
		`{"level":10}`:                              Trace,
		`{"level":30,"time":1531171074631}`:         slog.LevelInfo,
		`{"level":50}`:                              slog.LevelError,
		`{"level":60}`:                              Fatal,
		`{"severity":"WARNING"}`:                    slog.LevelWarn,
		`{"severity":3}`:                            slog.LevelError,
		`{"PRIORITY":"7","MESSAGE":"m"}`:            slog.LevelDebug,
		`{"PRIORITY":["4","7"],"MESSAGE":"m"}`:      slog.LevelWarn,
		`{"PRIORITY":[ 3 , 7 ]}`:                    slog.LevelError,
		`{"PRIORITY":[]}`:                           none,
		`{"PRIORITY":["47","7"]}`:                   none,
		`{"log.level":"error"}`:                     slog.LevelError,
		`{"@level":"trace"}`:                        Trace,
		`{"levelname":"CRITICAL"}`:                  Fatal,
		`{"Severity":"Warning"}`:                    slog.LevelWarn,
		`{"Severity":3}`:                            slog.LevelError,
		`{"sEVERITY":"error"}`:                      none,
		`{"level":"silly"}`:                         none,
		`{"level":3}`:                               none,
		`{"level":null,"lvl":"warn"}`:               slog.LevelWarn,
		`{"msg":"level ERROR"}`:                     none,
		`{"a":{"level":"error"},"b":[{"level":1}]}`: none,
		// logfmt
		`ts=1 level=warn msg=x`:    slog.LevelWarn,
		`ts=1 lvl="error" msg=x`:   slog.LevelError,
		`Time=1 Severity=err x=1`:  slog.LevelError,
		`ts=1 level=INFO+1 msg=x`:  slog.LevelInfo + 1,
		`a=1 msg="the ERROR page"`: none,
		// text
		"[Sun Dec 04 04:47:44 2005] [notice] workerEnv.init() ok":                  slog.LevelInfo,
		"[Sun Dec 04 04:47:44 2005] [error] mod_jk child workerEnv in error state": slog.LevelError,
		"[Wed Oct 11 14:32:52 2000] [core:error] [pid 1] x":                        slog.LevelError,
		"081109 203615 148 INFO dfs.DataNode$PacketResponder: x":                   slog.LevelInfo,
		"2015-07-29 19:04:29,071 - WARN  [SendWorker:1] - Send worker":             slog.LevelWarn,
		"2024-01-01 00:00:00 [ERROR] x":                                            slog.LevelError,
		"2024-01-01 00:00:00 [ warn ] x":                                           slog.LevelWarn,
		"[WARN ] x":                                                                slog.LevelWarn,
		"<info> x":                                                                 slog.LevelInfo,
		"ERROR: x":                                                                 slog.LevelError,
		"INFO:root:message":                                                        slog.LevelInfo,
		"error: no such file":                                                      slog.LevelError,
		"gcc: warning: unused":                                                     slog.LevelWarn,
		"fatal: not a git repository":                                              Fatal,
		`time="x" level=debug msg="y`:                                              slog.LevelDebug,
		`2024 level="error" x`:                                                     slog.LevelError,
		"E0102 15:04:05.678901   12 x.go:3] x":                                     slog.LevelError,
		"<34>Oct 11 22:14:15 mymachine su: x":                                      Fatal,
		"<13>1 x":                                                                  slog.LevelInfo,
		"<999>x":                                                                   none,
		"<>x":                                                                      none,
		"an error occurred":                                                        none,
		"Error in the middle":                                                      none,
		"GET /ERROR HTTP/1.1":                                                      none,
		"see ERROR-LOG":                                                            none,
		"x=ERROR":                                                                  none,
		"Information about":                                                        none,
		"INFORM all":                                                               none,
		"2026-11-23T10:11:12.345Z\tinfo\tcaller.go:1\tm":                           slog.LevelInfo, // zap's console
		"2026-11-23 10:11:12,345 Warning x":                                        slog.LevelWarn,
		"2026/11/23 10:11:12 Error reading x":                                      slog.LevelError,
		"10:11:12.345+02:00 Debug  x":                                              slog.LevelDebug,
		"10:11:12.345+02:00 Debug x":                                               none,
		"[10:11:12 INF] x":                                                         slog.LevelInfo, // Serilog
		"[10:11:12 VRB] x":                                                         Trace,
		"3:04PM WRN x":                                                             slog.LevelWarn, // zerolog's console
		"10:11:12 TRC x":                                                           Trace,
		"10:11:12 FTL x":                                                           Fatal,
		"WARN[0003] x":                                                             slog.LevelWarn, // logrus
		"ERRO[0000] x":                                                             slog.LevelError,
		"INFO[x] x":                                                                none,
		"Nov 23, 2026 10:11:12 AM com.example.Main main":                           none, // java.util.logging, in two lines
		"SEVERE: it failed":                                                        slog.LevelError,
		"23-Nov-2026 10:11:12.345 INFO [main] x":                                   slog.LevelInfo,
		"11-23 10:11:12.345  1234  5678 W Tag: x":                                  slog.LevelWarn,
		"11-23 10:11:12.345  1234  5678 Wx Tag: x":                                 none,
		"11-23 10:11:12.345 x y E Tag: x":                                          none,
		"11-26 10:00:01.123 D/ActivityManager( 1234): x":                           slog.LevelDebug, // logcat -v time
		"11-26 10:00:01.123456 W/Tag     (    1): x":                               slog.LevelWarn,
		"11-26 10:00:01.123 E/Tag( 1000: 1234): x":                                 slog.LevelError, // with -v uid
		"11-26 10:00:01.123 E/Tag(u0_a12: 1234): x":                                slog.LevelError,
		"11-26 10:00:01.123  1000  1234  1250 E Tag: x":                            slog.LevelError, // threadtime, with -v uid
		"11-26 10:00:01.123 u0_a12  1234  1250 W Tag: x":                           slog.LevelWarn,
		"11-26 10:00:01.123 u10_i9002  1234  1250 V Tag  : x":                      Trace,
		"11-26 10:00:01.123  root     0     0 I Tag: x":                            slog.LevelInfo,
		"11-26 10:00:01.123     0     1     2 I Tag: x":                            slog.LevelInfo,
		"11-26 10:00:01.123 I/O error (5): x":                                      none,
		"11-26 10:00:01.123 D/Tag(12) x":                                           none,
		"11-26 10:00:01.123 D/Tag(): x":                                            none,
		"11-26 10:00:01.123 D/Tag(at: 12): x":                                      none,
		"11-26 10:00:01.123 see D/Tag( 1): x":                                      none,
		"11-26 10:00:01.123 retry 3 4 A try: x":                                    none,
		"11-26 10:00:01.123 u_a1 3 4 A try: x":                                     none,
		"11-26 10:00:01.123 u0_12 3 4 A try: x":                                    none,
		"11-26 10:00:01.123 1 2 3 E":                                               none,
		"11-26 10:00:01.123 1 2 3 E without a tag":                                 none,
		"11-26 10:00:01.123 1 2 3 4 E Tag: x":                                      none,
		"11-26 10:00:01.123":                                                       none,
		"D/x":                                                                      none,
		"E/Tag( 123): x":                                                           slog.LevelError,
		"E/Tag( 1000:  123): x":                                                    slog.LevelError,
		"V/Tag(1): x":                                                              Trace,
		"I/O error (5): x":                                                         none,
		"I/O is slow":                                                              none,
		"[I 10:11:12.345 NotebookApp] x":                                           slog.LevelInfo,
		"[C 2026-11-23 10:11:12 x:1] x":                                            Fatal,
		"[A 1] x":                                                                  Fatal,
		"at 10:11:12 sharp, Info desk":                                             none,
		"10:11:12 Informing all":                                                   none,
		"10:11 Info x":                                                             none,
		"":                                                                         none,
		strings.Repeat("x ", 130) + "ERROR":                                        none,
	} {
		ev := parse(Auto, line)
		got := ev.Level
		if !ev.HasLevel {
			got = none
		}
		if got != want {
			t.Errorf("%q: %v, want %v", line, got, want)
		}
	}
}

// A time without a year is in the latest year in which it is at most one day in the future.
func TestYears(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip(err)
	}
	for _, c := range []struct{ now, line, want string }{
		{"2026-11-23T10:00:00Z", "Nov 23 09:00:00 host app: x", "2026-11-23T08:00:00Z"},
		{"2026-11-23T10:00:00Z", "Nov 24 10:59:59 host app: x", "2026-11-24T09:59:59Z"}, // the sender's clock is ahead
		{"2026-11-23T10:00:00Z", "Nov 25 09:00:00 host app: x", "2025-11-25T08:00:00Z"},
		{"2026-01-01T00:00:10Z", "<13>Dec 31 23:59:59 host app: x", "2025-12-31T22:59:59Z"},
		{"2025-12-31T23:00:00Z", "I0101 00:30:00.5 1 x.go:1] x", "2025-12-31T23:30:00.5Z"},
		{"2026-11-23T10:00:00Z", "Feb 29 12:00:00 x", "2024-02-29T11:00:00Z"},
		{"2103-11-23T10:00:00Z", "Feb 29 12:00:00 x", "2096-02-29T11:00:00Z"},
		{"2026-11-23T10:00:00Z", "03-26 02:30:00.5  1  2 I x: y", "2026-03-26T01:30:00.5Z"}, // does not exist in the year 2000 because of daylight saving time
		{"2026-11-23T10:00:00Z", `{"time":"Nov 23 09:00:00"}`, "2026-11-23T08:00:00Z"},
		{"2026-11-23T10:00:00Z", "2001-11-23 09:00:00 x", "2001-11-23T08:00:00Z"},
	} {
		now, err := time.Parse(time.RFC3339, c.now)
		if err != nil {
			t.Fatal(err)
		}
		p := Parser{Location: berlin, Now: func() time.Time { return now }}
		var ev Event
		p.Parse([]byte(c.line), &ev)
		if got := ev.Time.UTC().Format(time.RFC3339Nano); got != c.want {
			t.Errorf("%s, %q: %s, want %s", c.now, c.line, got, c.want)
		}
	}
}

// A number at the beginning of a text line is the time only if it is near the current time. A
// number in a time field is always the time.
func TestNumbers(t *testing.T) {
	now := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip(err)
	}
	for line, want := range map[string]string{
		"1234567890 bytes sent":                     "", // 2009
		"1234567890":                                "",
		"1234567890.5 s":                            "",
		"1234567890123 bytes":                       "",
		"1234567890123456 bytes":                    "",
		"1234567890123456789 bytes":                 "",
		"4915123456789 called":                      "", // 2125
		"9999999999 x":                              "", // 2286
		"12345678901 x":                             "",
		"123456789012 x":                            "",
		"1700000000 x":                              "2023-11-14T22:13:20Z",
		"1700000000.25 x":                           "2023-11-14T22:13:20.25Z",
		"1700000000123 x":                           "2023-11-14T22:13:20.123Z",
		"1700000000123456 x":                        "2023-11-14T22:13:20.123456Z",
		"1700000000123456789 x":                     "2023-11-14T22:13:20.123456789Z",
		"1479895200 ten years ago":                  "2016-11-23T10:00:00Z",
		"1479895199.999 before":                     "",
		"1795514400 in a day":                       "2026-11-24T10:00:00Z",
		"1795514400.001 behind":                     "",
		"[1700000000.123456] x":                     "2023-11-14T22:13:20.123456Z",
		"1234567890 2024-05-06T07:08:09Z x":         "2024-05-06T07:08:09Z",
		"1234567890 Nov 23 09:00:00 x":              "2026-11-23T08:00:00Z",
		"1700000000 Nov 23 09:00:00 x":              "2023-11-14T22:13:20Z",
		`{"time":1234567890,"msg":"x"}`:             "2009-02-13T23:31:30Z",
		`{"time":"1234567890","msg":"x"}`:           "2009-02-13T23:31:30Z",
		`{"time":"1234567890123 x","msg":"x"}`:      "2009-02-13T23:31:30.123Z",
		`{"t":9999999999}`:                          "2286-11-20T17:46:39Z",
		`time=1234567890 msg=x`:                     "2009-02-13T23:31:30Z",
		`time="1234567890.5" msg=x`:                 "2009-02-13T23:31:30.5Z",
		"Tue Oct 10 13:55:36 UTC 2023":              "2023-10-10T13:55:36Z",
		"Tue Oct 10 13:55:36 CEST 2023 x":           "2023-10-10T11:55:36Z",
		"Tue Oct 10 13:55:36 2023":                  "2023-10-10T11:55:36Z",
		`{"time":"Tue Oct 10 13:55:36 XYZ 2023"}`:   "2023-10-10T11:55:36Z",
		`{"time":"Tue Oct 10 13:55:36 -0200 2023"}`: "2023-10-10T15:55:36Z",
	} {
		p := Parser{Location: berlin, Now: func() time.Time { return now }}
		var ev Event
		p.Parse([]byte(line), &ev)
		got := ""
		if !ev.Time.IsZero() {
			got = ev.Time.UTC().Format(time.RFC3339Nano)
		}
		if got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
	// If Parser.Now is nil, the current time is used.
	if ev := parse(Text, "1234567890 x"); !ev.Time.IsZero() {
		t.Error(ev.Time)
	}
	at := time.Now().Unix()
	if ev := parse(Text, fmt.Sprint(at, " x")); ev.Time.Unix() != at {
		t.Error(ev.Time)
	}
}

// ParseLevel accepts names in any case and with an offset.
func TestParseLevel(t *testing.T) {
	for s, want := range map[string]slog.Level{"info": 0, "INFO+2": 2, "Warning": 4, "err": 8, "fatal": 12, "trace": -8, "debug": -4} {
		if got, err := ParseLevel(s); got != want || err != nil {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	if _, err := ParseLevel("loud"); err == nil || !strings.Contains(err.Error(), "warn") {
		t.Error(err)
	}
}

// Parse finds the time of lines of many loggers.
func TestTime(t *testing.T) {
	for line, want := range map[string]string{
		`{"time":"2024-05-06T07:08:09.5Z","msg":"m"}`:       "2024-05-06T07:08:09.5Z",
		`{"level":30,"time":1531171074631}`:                 "2018-07-09T21:17:54.631Z",
		`{"ts":1700000000.25,"level":"info"}`:               "2023-11-14T22:13:20.25Z",
		`{"__REALTIME_TIMESTAMP":"1700000000000001"}`:       "2023-11-14T22:13:20.000001Z",
		`{"@timestamp":"2024-05-06T07:08:09+02:00"}`:        "2024-05-06T05:08:09Z",
		`{"Timestamp":"2024-05-06T07:08:09.5+02:00"}`:       "2024-05-06T05:08:09.5Z", // Serilog
		`{"Time":"2024-05-06T07:08:09Z"}`:                   "2024-05-06T07:08:09Z",
		`{"TIMESTAMP":"2024-05-06T07:08:09Z"}`:              "",
		`Time=1700000000 Level=info`:                        "2023-11-14T22:13:20Z",
		`{"msg":"2024-05-06T07:08:09Z"}`:                    "",
		`{"time":12}`:                                       "",
		`{"time":null,"ts":"2024-05-06 07:08:09"}`:          "2024-05-06T07:08:09Z",
		`ts=2024-05-06T07:08:09Z level=info`:                "2024-05-06T07:08:09Z",
		`ts=1700000000 level=info`:                          "2023-11-14T22:13:20Z",
		"2015-07-29 19:04:29,071 - WARN  x":                 "2015-07-29T19:04:29.071Z",
		"Dec 10 06:55:46 LabSZ sshd[24200]: Invalid user x": "", // no year
		"plain": "",
	} {
		ev := parse(Auto, line)
		got := ""
		if !ev.Time.IsZero() {
			got = ev.Time.UTC().Format(time.RFC3339Nano)
		}
		if got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

// Each format of a line is written in each encoding.
func TestEncode(t *testing.T) {
	for _, c := range []struct {
		as       Encoding
		in, want string
	}{
		{AsRaw, "x\x00\xff\r\n", "x\x00\xff\r\n"},
		{AsRaw, "", ""},
		{AsRaw, `{"a":1}`, `{"a":1}`},

		// JSON is unchanged, including order, digits, duplicates, escapes and spaces.
		{AsJSON, `{"z":1.00,"a":12345678901234567890.123,"z":1e400,"é":"\u00e9<>&"}` + "\r\n", `{"z":1.00,"a":12345678901234567890.123,"z":1e400,"é":"\u00e9<>&"}` + "\n"},
		{AsJSON, ` { "a" : [ 1 , 2 ] } `, `{ "a" : [ 1 , 2 ] }` + "\n"},
		{AsJSON, "{\"a\":\"\xff\xfe\xfd\"}", "{\"a\":\"\uFFFD\"}\n"},
		// Text
		{AsJSON, "plain\n", `{"msg":"plain"}` + "\n"},
		{AsJSON, "\n", `{"msg":""}` + "\n"},
		{AsJSON, "tab\t\"q\" \x00\x1b[31m\n", `{"msg":"tab\t\"q\" \u0000\u001b[31m"}` + "\n"},
		{AsJSON, "2015-07-29 19:04:29,071 - WARN  [x] - y\r\n", `{"time":"2015-07-29T19:04:29.071000000Z","level":"WARN","msg":"2015-07-29 19:04:29,071 - WARN  [x] - y"}` + "\n"},
		{AsJSON, "ERROR: x", `{"level":"ERROR","msg":"ERROR: x"}` + "\n"},
		{AsJSON, "FATAL x", `{"level":"FATAL","msg":"FATAL x"}` + "\n"},
		{AsJSON, "[crit] y", `{"level":"FATAL","msg":"[crit] y"}` + "\n"},
		{AsLogfmt, "TRACE z", `level=TRACE msg="TRACE z"` + "\n"},
		{AsJSON, `{"a":`, `{"msg":"{\"a\":"}` + "\n"},
		// logfmt to JSON
		{AsJSON, `ts=2024-05-06T07:08:09Z level=info msg="a \"b\"\n" n=12 f=0.25 v=1.10 id=007 h=123e4567 big=12345678901234567890 neg=-3 ok=true no=false e= q=""`,
			`{"ts":"2024-05-06T07:08:09Z","level":"info","msg":"a \"b\"\n","n":12,"f":0.25,"v":"1.10","id":"007","h":"123e4567","big":"12345678901234567890","neg":-3,"ok":true,"no":false,"e":"","q":""}` + "\n"},
		{AsJSON, `a="\u12" b="\q" c="\/" d="\ud83d\ude00" e="\x41"`, `{"a":"\\u12","b":"\\q","c":"/","d":"😀","e":"A"}` + "\n"},
		// JSON to logfmt
		{AsLogfmt, `{"time":"2024-05-06T07:08:09Z","level":"info","msg":"a b","n":1.00,"big":12345678901234567890,"o":{"x":1,"y":{"z":"q"}},"l":[1, "two"],"none":null,"e":{},"t":true}`,
			`time=2024-05-06T07:08:09Z level=info msg="a b" n=1.00 big=12345678901234567890 o.x=1 o.y.z=q l="[1, \"two\"]" none=null e={} t=true` + "\n"},
		{AsLogfmt, `{"a\u0062":"x\ny"}`, `ab="x\ny"` + "\n"},
		{AsLogfmt, "level=info  msg=x\r\n", "level=info  msg=x\n"},
		{AsLogfmt, "plain text", `msg="plain text"` + "\n"},
		{AsLogfmt, "2015-07-29 19:04:29,071 - WARN x", `time=2015-07-29T19:04:29.071000000Z level=WARN msg="2015-07-29 19:04:29,071 - WARN x"` + "\n"},
	} {
		ev := parse(Auto, c.in)
		got, err := NewEncoder(c.as).Append([]byte("before "), &ev)
		if string(got) != "before "+c.want || err != nil {
			t.Errorf("%v of %q:\n got %q\nwant %q (%v)", c.as, c.in, got, "before "+c.want, err)
		}
	}
}

// No member of a line is lost or changed. Level, time and message are each removed once, from the
// member that provided them.
func TestFields(t *testing.T) {
	for _, c := range []struct{ in, msg, rest string }{
		{`{"level":"x","ts":1714979289.5,"msg":"m","a":1,"level":"info","msg":"n","b":2}`, "n", `{"level":"x","msg":"m","a":1,"b":2}`},
		{`{"level":"info","time":1714979289.5,"message":"m","level":"x","time":"y","z":1}`, "m", `{"level":"x","time":"y","z":1}`},
		{`{"level":{"x":1},"lvl":"warn","time":"no","t":1714979289,"message":"m"}`, "m", `{"level":{"x":1},"time":"no"}`},
		{`{"n":-0,"m":1.00,"f":0.25,"g":1e400,"u":18446744073709551615,"v":12345678901234567890123,"e":1e21,"z":0.0}`, "",
			`{"n":-0,"m":1.00,"f":0.25,"g":1e400,"u":18446744073709551615,"v":12345678901234567890123,"e":1e21,"z":0.0}`},
		{`{"o":{"x":{"y":null}},"l":[1, {"z":1,"a":[]}],"t":true,"f":false,"e":{},"msg":1}`, "",
			`{"o":{"x":{"y":null}},"l":[1, {"z":1,"a":[]}],"t":true,"f":false,"e":{},"msg":1}`},
		{`level=info msg="a b" n=12`, "a b", `{"n":12}`},
		{`plain text`, "plain text", `{}`},
	} {
		ev := parse(Auto, c.in)
		msg, attrs := ev.Fields()
		scope := NewEncoder(AsJSON).pairs
		got, _, err := scope.Append(nil, &encode.Record{Attrs: attrs})
		if msg != c.msg || string(got) != c.rest+"\n" || err != nil {
			t.Errorf("%s:\n got %q %s want %q %s (%v)", c.in, msg, got, c.msg, c.rest, err)
		}
	}
	for in, kind := range map[string]slog.Kind{
		"1": slog.KindInt64, "-1": slog.KindInt64, "18446744073709551615": slog.KindUint64, "0.25": slog.KindFloat64,
		"1.10": slog.KindAny, "true": slog.KindBool, `"x"`: slog.KindString, `{"a":1}`: slog.KindGroup, "{}": slog.KindAny,
	} {
		if got := Attrs([]byte(`{"k":` + in + `}`))[0].Value.Kind(); got != kind {
			t.Errorf("%s is of kind %v, want %v", in, got, kind)
		}
	}
}

// Meta returns the time and the level of an event, or LevelInfo if there is no level.
func TestMeta(t *testing.T) {
	ev := parse(Auto, "2015-07-29 19:04:29,071 - WARN x")
	if m := Meta(&ev); m.Time != time.Date(2015, 7, 29, 19, 4, 29, 71e6, time.UTC).UnixNano() || m.Level != slog.LevelWarn || m.Stream != 0 {
		t.Errorf("%+v", m)
	}
	ev = parse(Auto, "9999-07-29 19:04:29 far away")
	if m := Meta(&ev); m.Time != 0 || m.Level != slog.LevelInfo {
		t.Errorf("%+v", m)
	}
}

// ParseFormat and ParseEncoding are the inverse of String and refuse other names.
func TestNames(t *testing.T) {
	for _, s := range Formats() {
		if f, err := ParseFormat(s); err != nil || f.String() != s {
			t.Error(s, f, err)
		}
	}
	for _, s := range Encodings() {
		e, err := ParseEncoding(s)
		if err != nil || e.String() != s || (e.Codec() == nil) != (e == AsRaw) {
			t.Error(s, e, err)
		}
	}
	if _, err := ParseFormat("xml"); err == nil {
		t.Error("xml: no error")
	}
	if _, err := ParseEncoding("xml"); err == nil {
		t.Error("xml: no error")
	}
}

// Parse finds as many lines with each level in the sample logs as grep does.
func TestSampleLogs(t *testing.T) {
	for name, want := range map[string]map[slog.Level]int{
		"Apache":    {slog.LevelInfo: 1405, slog.LevelError: 595},
		"HDFS":      {slog.LevelInfo: 1920, slog.LevelWarn: 80},
		"OpenStack": {slog.LevelInfo: 1969, slog.LevelWarn: 31},
		"Zookeeper": {slog.LevelInfo: 669, slog.LevelWarn: 1318, slog.LevelError: 13},
		"OpenSSH":   {slog.LevelError: 47, Fatal: 1}, // "error:" and "fatal:"
	} {
		b, err := os.ReadFile(filepath.Join("..", "..", "testdata", "logs", name+".log"))
		if err != nil {
			t.Fatal(err)
		}
		got := map[slog.Level]int{}
		enc := NewEncoder(AsJSON)
		for line := range bytes.Lines(b) {
			ev := parse(Auto, string(line))
			if ev.Format != Text {
				t.Errorf("%s: %q is %v", name, line, ev.Format)
			}
			if ev.HasLevel {
				got[ev.Level]++
			}
			out, err := enc.Append(nil, &ev)
			var back struct{ Msg string }
			if err != nil || json.Unmarshal(out, &back) != nil || back.Msg != string(TrimEnd(line)) {
				t.Errorf("%s: %q became %q", name, line, out)
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: levels %v, want %v", name, got, want)
		}
	}
}

// Any input produces one valid line. Text lines and valid JSON keep their contents.
func FuzzEncode(f *testing.F) {
	for _, s := range []string{"x", `{"a":[1,{"b":2}],"level":"info"}`, `a=1 b="x\"y" level=warn`, "\xff\x00\n", "[error] x", `{"":{"":""}}`, `{"time":1700000000}`, `a=- b=-0 c=1.`, `\ =1 x=2`,
		"11-23 10:11:12.345  1  2 I Tag: x", "E/Tag( 1): x", "[I 1", "Feb 29 10:11:12 Info x", "INFO[0]", `{"time":"Nov 23 10:11:12"}`} {
		for as := range 3 {
			f.Add([]byte(s), uint8(as), uint8(0))
		}
	}
	f.Fuzz(func(t *testing.T, line []byte, as, format uint8) {
		line, _, _ = bytes.Cut(line, []byte{'\n'})
		now := time.Unix(1800000000, 0)
		p := Parser{Format: Format(format % 4), Location: time.UTC, Now: func() time.Time { return now }}
		var ev Event
		p.Parse(line, &ev)
		e := Encoding(as % 3)
		out, err := NewEncoder(e).Append(nil, &ev)
		if err != nil {
			t.Fatal(err)
		}
		if e == AsRaw {
			if !bytes.Equal(out, line) {
				t.Fatalf("%q became %q", line, out)
			}
			return
		}
		if bytes.Count(out, []byte{'\n'}) != 1 || out[len(out)-1] != '\n' {
			t.Fatalf("%q became %q", line, out)
		}
		if e != AsJSON {
			return
		}
		if !json.Valid(out) {
			t.Fatalf("%q became %q", line, out)
		}
		switch ev.Format {
		case Text:
			var back struct{ Msg string }
			if err := json.Unmarshal(out, &back); err != nil || back.Msg != string([]rune(string(line))) {
				t.Fatalf("%q became %q: %q, %v", line, out, back.Msg, err)
			}
		case JSON:
			var a, b any
			if json.Unmarshal(line, &a) != nil || json.Unmarshal(out, &b) != nil {
				t.Skip() // a number too large for both formats
			}
			x, _ := json.Marshal(a)
			y, _ := json.Marshal(b)
			if bytes.IndexByte(line, 0xff) < 0 && !bytes.Equal(x, y) && bytes.Equal(line, bytes.ToValidUTF8(line, nil)) {
				t.Fatalf("%q became %q", line, out)
			}
		}
	})
}
