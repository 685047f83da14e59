package syslog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/listen"
	"github.com/forebay-log/forebay/cmd/internal/listen/listentest"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/netsink"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A testServer is a server with a sink that stores the records, and a list of the refusals.
type testServer struct {
	*Server
	sink    *listentest.Sink
	refused *listentest.Refusals
	pipes   *listentest.Pipes
}

// serve starts a server that accepts connections in memory.
func serve(t testing.TB, c listen.Config) *testServer {
	b := &testServer{sink: new(listentest.Sink), refused: new(listentest.Refusals), pipes: listentest.NewPipes()}
	c.Sink, c.Refused = b.sink, b.refused.Add
	b.Server = New(c)
	b.Serve(b.pipes)
	t.Cleanup(func() { b.Close(context.Background()) })
	return b
}

// waitUntil waits until the function ok returns true. It fails after a minute.
func waitUntil(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("timeout: the condition is still false after a minute")
		}
	}
}

// show returns the fields of a record as one line, without facility and severity.
func show(r *listen.Record) string {
	var sb strings.Builder
	if r.HasLevel {
		fmt.Fprintf(&sb, "%v ", r.Level)
	}
	if !r.Time.IsZero() {
		sb.WriteString(r.Time.UTC().Format(time.RFC3339Nano) + " ")
	}
	fmt.Fprintf(&sb, "tag=%q", r.Tag)
	for _, l := range r.Labels {
		if l.Name != "facility" && l.Name != "severity" {
			fmt.Fprintf(&sb, " %s=%q", l.Name, l.Value)
		}
	}
	for _, l := range r.Metadata {
		fmt.Fprintf(&sb, " [%s=%q]", l.Name, l.Value)
	}
	fmt.Fprintf(&sb, " %q", r.Body)
	return sb.String()
}

// messages contains messages and their records, in the format of the function show.
var messages = []struct{ in, want string }{
	// These are the examples of RFC 5424 §6.5.
	{"<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - \ufeff'su root' failed for lonvick on /dev/pts/8",
		`ERROR+4 2003-10-11T22:14:15.003Z tag="su" host="mymachine.example.com" msgid="ID47" "'su root' failed for lonvick on /dev/pts/8"`},
	{"<165>1 2003-08-24T05:14:15.000003-07:00 192.0.2.1 myproc 8710 - - %% It's time to make the do-nuts.",
		`INFO 2003-08-24T12:14:15.000003Z tag="myproc" host="192.0.2.1" procid="8710" "%% It's time to make the do-nuts."`},
	{`<165>1 2003-10-11T22:14:15.003Z h evntslog - ID47 [exampleSDID@32473 iut="3" eventSource="Application"][x@1 y="a\"b\\c\]d\e"] An application event`,
		`INFO 2003-10-11T22:14:15.003Z tag="evntslog" host="h" msgid="ID47" [exampleSDID@32473.iut="3"] [exampleSDID@32473.eventSource="Application"] [x@1.y="a\"b\\c]d\\e"] "An application event"`},
	{"<165>1 2003-10-11T22:14:15.003Z h evntslog - ID47 [exampleSDID@32473 iut=\"3\"]", `INFO 2003-10-11T22:14:15.003Z tag="evntslog" host="h" msgid="ID47" [exampleSDID@32473.iut="3"] ""`},
	{"<0>1 - - - - - -", `ERROR+4 tag="" ""`},
	{"<191>1 - - - - - [a]\n", `DEBUG tag="" ""`},
	// These messages differ from RFC 5424. Their valid parts are parsed, and the rest is the body.
	{"<34>1 2003-10-11 h su 12 ID47 - x", `ERROR+4 tag="su" host="h" procid="12" msgid="ID47" "x"`},
	{"<34>1 2003-10-11T22:14:60Z h su 12 ID47 - x", `ERROR+4 2003-10-11T22:14:59Z tag="su" host="h" procid="12" msgid="ID47" "x"`},
	{"<34>1 2003-10-11T22:14:15+0100 h su 12 ID47 - x", `ERROR+4 2003-10-11T21:14:15Z tag="su" host="h" procid="12" msgid="ID47" "x"`},
	{"<34>1 2003-02-30T22:14:15Z h su 12 ID47 - x", `ERROR+4 tag="su" host="h" procid="12" msgid="ID47" "x"`},
	{"<34>1 2003-10-11T22:14:15Z h su 12 ID47 no data", `ERROR+4 2003-10-11T22:14:15Z tag="su" host="h" procid="12" msgid="ID47" "no data"`},
	{`<34>1 - h su - - [x a="1" b="2" a="3" a="4"][x a="5"] z`, `ERROR+4 tag="su" host="h" [x.a="1"] [x.b="2"] [x.a_="3"] [x.a__="4"] [x.a___="5"] "z"`},
	{"<34>1 - h su - - [x y] z", `ERROR+4 tag="su" host="h" "[x y] z"`},
	{"<34>1 - h su - - [x y=\"1\" z", `ERROR+4 tag="su" host="h" "[x y=\"1\" z"`},
	{"<34>1 2003-10-11T22:14:15Z h su 12 ID47", `ERROR+4 2003-10-11T22:14:15Z tag="su" host="h" procid="12" msgid="ID47" ""`},
	{"<34>1 2003-10-11T22:14:15Z h su 12 ID47\n", `ERROR+4 2003-10-11T22:14:15Z tag="su" host="h" procid="12" msgid="ID47" ""`},
	{"<34>1 2003-10-11T22:14:15Z h su 12", `ERROR+4 tag="" "1 2003-10-11T22:14:15Z h su 12"`},
	{"<34>1 - h su 12 ID47", `ERROR+4 tag="" "1 - h su 12 ID47"`},
	{"<34>1 - h su", `ERROR+4 tag="" "1 - h su"`},
	{`<34>1 - h su - - [` + "many" + strings.Repeat(` a="b"`, 200) + `] z`, `ERROR+4 tag="su" host="h" "[many` + strings.Repeat(` a=\"b\"`, 200) + `] z"`},
	// These are the examples of RFC 3164 §5.4, and variants that programs send.
	{"<34>Oct 11 22:14:15 mymachine su: 'su root' failed", `ERROR+4 2026-10-11T22:14:15Z tag="su" host="mymachine" "'su root' failed"`},
	{"<13>Feb  5 17:32:18 10.0.0.99 Use the BFG!", `INFO 2026-02-05T17:32:18Z tag="" host="10.0.0.99" "Use the BFG!"`},
	{"<13>Nov 23 12:00:00 host app[123]: text: more", `INFO 2026-11-23T12:00:00Z tag="app" host="host" procid="123" "text: more"`},
	{"<13>Nov 23 12:00:00 app[123]: from this machine\n", `INFO 2026-11-23T12:00:00Z tag="app" procid="123" "from this machine"`},
	{"<13>Nov 23 12:00:00.123456 host app: fractions", `INFO 2026-11-23T12:00:00.123456Z tag="app" host="host" "fractions"`},
	{"<13>Nov 23 2025 12:00:00 host app: a year", `INFO 2025-11-23T12:00:00Z tag="app" host="host" "a year"`},
	{"<13>2026-11-23T12:00:00.5+01:00 host app: rsyslog", `INFO 2026-11-23T11:00:00.5Z tag="app" host="host" "rsyslog"`},
	{"<189>Nov 23 12:00:00: %LINK-3-UPDOWN: down", `INFO 2026-11-23T12:00:00Z tag="%LINK-3-UPDOWN" "down"`},
	// These messages are from Cisco devices with IOS, NX-OS or ASA.
	{"<189>82: *Nov 20 10:11:12.123: %SYS-5-CONFIG_I: Configured", `INFO 2026-11-20T10:11:12.123Z tag="%SYS-5-CONFIG_I" "Configured"`},
	{"<189>82: 000079: .Nov 20 10:11:12: %SYS-5-CONFIG_I: Configured", `INFO 2026-11-20T10:11:12Z tag="%SYS-5-CONFIG_I" "Configured"`},
	{"<189>82: R1: Nov 20 2025 10:11:12.123 UTC: %LINK-3-UPDOWN: down", `INFO 2025-11-20T10:11:12.123Z tag="%LINK-3-UPDOWN" host="R1" "down"`},
	{"<189>83: R1: 12: *Nov 20 10:11:12.123 CET: %LINK-3-UPDOWN: down", `INFO 2026-11-20T10:11:12.123Z tag="%LINK-3-UPDOWN" host="R1" "down"`},
	{"<189>84: %SYS-5-RESTART: no time", `INFO tag="%SYS-5-RESTART" "no time"`},
	{"<189>: 2026 Nov 20 10:11:12 UTC: %ETHPORT-5-IF_UP: up", `INFO 2026-11-20T10:11:12Z tag="%ETHPORT-5-IF_UP" "up"`},
	{"<189>: 2026 Nov 20 10:11:12.123 CET: %ETHPORT-5-IF_UP: up", `INFO 2026-11-20T10:11:12.123Z tag="%ETHPORT-5-IF_UP" "up"`},
	{"<189>2026 Nov 20 10:11:12 n9k %ETHPORT-5-IF_UP: up", `INFO 2026-11-20T10:11:12Z tag="%ETHPORT-5-IF_UP" host="n9k" "up"`},
	{"<166>Nov 20 2026 10:11:12 fw1 : %ASA-6-302013: Built", `INFO 2026-11-20T10:11:12Z tag="%ASA-6-302013" host="fw1" "Built"`},
	{"<166>Nov 20 2026 10:11:12: %ASA-6-302013: Built", `INFO 2026-11-20T10:11:12Z tag="%ASA-6-302013" "Built"`},
	{"<166>2026-11-20T10:11:12Z fw1 : %ASA-6-302013: Built", `INFO 2026-11-20T10:11:12Z tag="%ASA-6-302013" host="fw1" "Built"`},
	{"<166>:Nov 20 10:11:12 UTC: %ASA-6-302013: Built", `INFO 2026-11-20T10:11:12Z tag="%ASA-6-302013" "Built"`},
	{"<13>Nov 20 10:11:12 host 45: items", `INFO 2026-11-20T10:11:12Z tag="45" host="host" "items"`},
	{"<13>45: items: many", `INFO tag="45" "items: many"`},
	{"<13>: items", `INFO tag="" ": items"`},
	{"<13>: : items", `INFO tag="" ": : items"`},
	{"<13>app: no time", `INFO tag="app" "no time"`},
	{"<13>no time and no tag", `INFO tag="" "no time and no tag"`},
	{"<13>http://x is no tag", `INFO tag="" "http://x is no tag"`},
	{"<13>app[1] x: y", `INFO tag="" "app[1] x: y"`},
	{"<13>", `INFO tag="" ""`},
	// These messages have no valid priority or an invalid header.
	{"just text", `tag="" "just text"`},
	{"<192>x", `tag="" "<192>x"`},
	{"<+1>x", `tag="" "<+1>x"`},
	{"<>x", `tag="" "<>x"`},
	{"<1", `tag="" "<1"`},
	{"<13>Nov 31 12:00:00 host app: no such day", `INFO tag="" "Nov 31 12:00:00 host app: no such day"`},
	{"<13>\xff\xfe\r\n", "INFO tag=\"\" \"\\xff\\xfe\""},
}

// now is the time at which the messages arrive.
var now = time.Date(2026, 11, 23, 23, 0, 0, 0, time.UTC)

func TestParseAcceptsEveryVariant(t *testing.T) {
	p := Parser{MaxLabels: 128, Zone: time.UTC}
	for _, tt := range messages {
		if got := show(p.Parse([]byte(tt.in), now)); got != tt.want {
			t.Errorf("%q\n got %s\nwant %s", tt.in, got, tt.want)
		}
	}
	r := p.Parse([]byte("<189>x"), now)
	if !slices.Equal(r.Labels, []listen.Label{{Name: "facility", Value: "local7"}, {Name: "severity", Value: "notice"}}) {
		t.Errorf("%v", r.Labels)
	}
}

// Line accepts a line without a priority, and rejects text without a header.
func TestLineMayLackPriority(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"Oct 11 22:14:15 mymachine su[7]: failed", `2026-10-11T22:14:15Z tag="su" host="mymachine" procid="7" "failed"`},
		{"2026-10-11T22:14:15Z mymachine su: failed", `2026-10-11T22:14:15Z tag="su" host="mymachine" "failed"`},
		{"<34>su: failed", `ERROR+4 tag="su" "failed"`},
		{"<0>1 - - - - - -", `ERROR+4 tag="" ""`},
		{"<34>1 - h su", ""},
		{"<34>text", ""},
		{"su: failed", ""},
		{"Oct 11 22:14:15 mymachine text", ""},
		{"", ""},
	} {
		p := Parser{MaxLabels: 128, Zone: time.UTC}
		if r, ok := p.Line([]byte(tt.in), now); ok != (tt.want != "") || ok && show(r) != tt.want {
			t.Errorf("%q: %v\n got %s\nwant %s", tt.in, ok, show(r), tt.want)
		}
	}
}

// The year of a time without a year is the latest one in which the time is not in the future. This
// is also correct at the end of a year and for a leap day.
func TestTimeWithoutYearIsNotInFuture(t *testing.T) {
	for _, tt := range []struct{ now, in, want string }{
		{"2026-01-01T00:00:10Z", "Dec 31 23:59:59", "2025-12-31T23:59:59Z"},
		{"2025-12-31T23:59:59Z", "Jan  1 00:00:01", "2026-01-01T00:00:01Z"},
		{"2026-11-23T00:00:00Z", "Feb  5 00:00:00", "2026-02-05T00:00:00Z"},
		{"2026-11-23T00:00:00Z", "Dec  5 00:00:00", "2025-12-05T00:00:00Z"},
		{"2026-06-15T00:00:00Z", "Jun 15 00:00:01", "2026-06-15T00:00:01Z"},
		{"2025-01-10T00:00:00Z", "Feb 29 00:00:00", "2024-02-29T00:00:00Z"},
		{"2026-06-15T00:00:00Z", "Feb 29 00:00:00", "2024-02-29T00:00:00Z"},
	} {
		at, _ := time.Parse(time.RFC3339, tt.now)
		p := Parser{Zone: time.UTC}
		if got := p.Parse([]byte("<13>"+tt.in+" h a: b"), at).Time.Format(time.RFC3339); got != tt.want {
			t.Errorf("%s at %s is %s, want %s", tt.in, tt.now, got, tt.want)
		}
	}
	zone := time.FixedZone("", 2*3600)
	p := Parser{Zone: zone}
	if got := p.Parse([]byte("<13>Nov 23 12:00:00 h a: b"), now).Time; got.UTC().Hour() != 10 {
		t.Error(got)
	}
}

// If a line begins with a number and a space, the number is the length of a message (RFC 6587,
// section 3.4.1) only if a priority follows.
func TestLinesThatBeginWithNumbers(t *testing.T) {
	want := []string{
		"45 items were processed", "1795169472.123 77 10.0.0.1 TCP_MISS/200", "12 <b>bold", "3 <1234>x", "2 <13>longer than its length", "0 <13>x",
		"012 <13>x", "1234567890 <13>x", "7", "7 ", "8 <", "8 <13", "1  <13>x", "12\t<13>x", "the last",
	}
	in := "7 <13>abc" + strings.Join(want[:8], "\n") + "\n9 <13>a\nb\nc" + strings.Join(want[8:], "\n")
	for _, size := range []int{1, 2, 3, 1000} {
		b := serve(t, listen.Config{})
		c := b.pipes.Dial()
		for part := range slices.Chunk([]byte(in), size) {
			if _, err := c.Write(part); err != nil {
				t.Fatal(err, b.refused.All())
			}
		}
		c.Close()
		b.sink.Await(t, len(want)+2)
		got := b.sink.Bodies()
		if got[0] != "abc" || got[9] != "a\nb\nc" || !slices.Equal(slices.Concat(got[1:9], got[10:]), want) || b.refused.All() != nil {
			t.Errorf("with parts of %d bytes: %q, refused %q", size, got, b.refused.All())
		}
	}
}

// One connection may contain messages with a length before them and messages that end at LF. The
// sizes of the reads do not matter.
func TestLengthsAndLinesMayBeMixed(t *testing.T) {
	in := "<13>one\n" + "9 <13>a\nb\nc" + "<13>two\r\n" + "\n" + "7 <13>3 d" + "2026-01-02 is no length\n" + "<13>last"
	want := []string{"one", "a\nb\nc", "two", "3 d", "2026-01-02 is no length", "last"}
	for _, size := range []int{1, 2, 3, 1000} {
		b := serve(t, listen.Config{})
		c := b.pipes.Dial()
		for part := range slices.Chunk([]byte(in), size) {
			if _, err := c.Write(part); err != nil {
				t.Fatal(err, b.refused.All())
			}
		}
		c.Close()
		b.sink.Await(t, len(want))
		if got := b.sink.Bodies(); !slices.Equal(got, want) {
			t.Errorf("with parts of %d bytes: %q, refused %q", size, got, b.refused.All())
		}
		waitUntil(t, func() bool { return b.Stats().Records == uint64(len(want)) })
	}
}

// A message may end at NUL, like the messages of Python's SysLogHandler over TCP. It is accepted
// immediately. Repeated ends are ignored. Only a message that follows its length may contain LF or
// NUL.
func TestMessageMayEndAtNUL(t *testing.T) {
	in := "<12>one\x00<11>two\x00\n" + "\x00\x00" + "9 <13>a\nb\x00c" + "\x00" + "<13>three\r\n\x00" + "<13>four\n" + "7 <13>3 d" +
		"2026-01-02 is no length\x00" + "12\x00" + "<13>" + strings.Repeat("x", 5000) + "\x00" + "<13>last\x00"
	want := []string{"one", "two", "a\nb\x00c", "three", "four", "3 d", "2026-01-02 is no length", "12", strings.Repeat("x", 5000), "last"}
	for _, size := range []int{1, 2, 3, 1000, 10000} {
		b := serve(t, listen.Config{})
		c := b.pipes.Dial()
		for part := range slices.Chunk([]byte(in), size) {
			if _, err := c.Write(part); err != nil {
				t.Fatal(err, b.refused.All())
			}
		}
		waitUntil(t, func() bool { return b.Stats().Records >= uint64(len(want)) })
		if got := b.sink.Bodies(); !slices.Equal(got, want) || b.refused.All() != nil {
			t.Errorf("with parts of %d bytes: %.60q, refused %q", size, got, b.refused.All())
		}
		c.Close()
	}
}

// Package netsink can deliver syslog messages to the server.
func TestClientOfThisProjectDelivers(t *testing.T) {
	b := serve(t, listen.Config{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.Serve(l)
	dest, err := netsink.New(netsink.Config{Address: "syslog+tcp://" + l.Addr().String() + "?app=shop&facility=local3&hostname=h&msgid=m"})
	if err != nil {
		t.Fatal(err)
	}
	out, err := deliver.NewOutput(dest, &deliver.OutputOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const n = 1000
	at := time.Now().Truncate(time.Microsecond)
	for i := range n {
		if err := out.WriteRecord(fmt.Appendf(nil, "line %d\n", i), batch.Meta{Level: slog.LevelWarn, Time: at.UnixNano()}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := out.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	for i, r := range b.sink.Await(t, n) {
		if string(r.Body) != fmt.Sprintf("line %d", i) || r.Tag != "shop" || r.Level != slog.LevelWarn || !r.Time.Equal(at) ||
			!slices.Contains(r.Labels, listen.Label{Name: "facility", Value: "local3"}) || !slices.Contains(r.Labels, listen.Label{Name: "host", Value: "h"}) {
			t.Fatalf("%d: %s %v", i, show(&r), r.Labels)
		}
	}
}

func TestDatagramsAreAccepted(t *testing.T) {
	networks := [][2]string{{"udp", "127.0.0.1:0"}}
	if runtime.GOOS != "windows" {
		networks = append(networks, [2]string{"unixgram", filepath.Join(t.TempDir(), "s")})
	}
	for _, n := range networks {
		b := serve(t, listen.Config{})
		c, err := net.ListenPacket(n[0], n[1])
		if err != nil {
			t.Fatal(err)
		}
		b.ServePackets(c)
		client, err := net.Dial(n[0], c.LocalAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100 { // small enough for the receive buffer of any socket
			fmt.Fprintf(client, "<13>a: line\n%d", i)
		}
		client.Write(nil)
		client.Write([]byte("\n"))
		b.sink.Await(t, 100)
		for i, body := range b.sink.Bodies() {
			if body != fmt.Sprintf("line\n%d", i) {
				t.Fatalf("%s: %d: %q", n[0], i, body)
			}
		}
		client.Close()
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if st := b.Stats(); st.Records != 100 || st.Refused != 0 {
			t.Errorf("%+v", st)
		}
		c, err = net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		b.ServePackets(c) // closes c, because the server is closed
		if _, _, err := c.ReadFrom(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	}
}

func TestInvalidFramesAreRefused(t *testing.T) {
	for name, tt := range map[string]struct{ in, want string }{
		"a line without an end": {"<13>" + strings.Repeat("x", 3<<20), "longer than 1 MiB"},
		"a length of 2 MiB":     {"2097152 <13>x", "longer than 1 MiB"},
		"a length of 999 MB":    {"999999999 <13>x", "longer than 1 MiB"},
		"an incomplete message": {"100 <13>x", "ended within a message: 9 B received"},
	} {
		t.Run(name, func(t *testing.T) {
			b := serve(t, listen.Config{Limits: listen.Limits{MessageBytes: 1 << 20}})
			c := b.pipes.Dial()
			io.WriteString(c, "<13>good\n")
			io.WriteString(c, tt.in)
			c.Close()
			waitUntil(t, func() bool { return len(b.refused.All()) > 0 })
			if got := b.refused.All(); len(got) != 1 || !strings.Contains(got[0], tt.want) || len(got[0]) > 200 {
				t.Errorf("refused %q", got)
			}
			if got := b.sink.Bodies(); !slices.Equal(got, []string{"good"}) {
				t.Errorf("accepted %.100q", got)
			}
		})
	}
	// If a message is incomplete for a minute, the connection ends. A silent connection without an
	// incomplete message remains open.
	bubble.Test(t, func(t *testing.T) {
		b := serve(t, listen.Config{})
		silent, partial := b.pipes.Dial(), b.pipes.Dial()
		io.WriteString(partial, "100 <13>")
		start := time.Now()
		io.Copy(io.Discard, partial)
		if took := time.Since(start); took != time.Minute {
			t.Errorf("the connection with an incomplete message ends after %v, want 1m0s", took)
		}
		time.Sleep(24 * time.Hour)
		if _, err := io.WriteString(silent, "<13>hello\n"); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if got := b.sink.Bodies(); !slices.Equal(got, []string{"hello"}) {
			t.Errorf("%q", got)
		}
		silent.Close()
		b.Close(context.Background())
	})
}

// The server stops reading while the sink is blocked. Messages that were read before Close are
// accepted.
func TestBlockedSinkStopsReading(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := serve(t, listen.Config{})
		open := b.sink.Block()
		c := b.pipes.Dial()
		sent := make(chan int)
		go func() {
			n := 0
			for ; n < 1000; n++ {
				if _, err := c.Write([]byte("<13>x\n")); err != nil {
					break
				}
			}
			sent <- n
		}()
		time.Sleep(time.Hour)
		select {
		case n := <-sent:
			t.Errorf("%d messages were sent", n)
		default:
		}
		open()
		if n := <-sent; n != 1000 {
			t.Errorf("%d messages were sent", n)
		}
		synctest.Wait()
		if _, committed := b.sink.Records(); committed != 1000 {
			t.Errorf("%d records are committed, want 1000", committed)
		}
		b.Close(context.Background())
		if _, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Error(err)
		}
	})
	b := serve(t, listen.Config{})
	b.sink.Fail(errors.New("disk full"))
	c := b.pipes.Dial()
	io.WriteString(c, "<13>x\n")
	if _, err := c.Read(make([]byte, 1)); err != io.EOF || b.refused.All() != nil {
		t.Errorf("%v, refused %q", err, b.refused.All())
	}
}

func TestActionRejectsOrResets(t *testing.T) {
	actions := make(chan listen.Action, 3)
	actions <- listen.Accept
	actions <- listen.Reject
	actions <- listen.Reset
	b := serve(t, listen.Config{Action: func(context.Context) listen.Action { return <-actions }})
	c := b.pipes.Dial()
	io.WriteString(c, "<13>a\n<13>b\n<13>c\n")
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Error(err)
	}
	if got := b.sink.Bodies(); !slices.Equal(got, []string{"a"}) || b.refused.All() != nil {
		t.Errorf("%q, refused %q", got, b.refused.All())
	}
}

// Whatever the message, Parse does not panic, and the fields of the record are parts of the
// message.
func FuzzParse(f *testing.F) {
	for _, m := range messages {
		f.Add([]byte(m.in))
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		p := Parser{MaxLabels: 4, Zone: time.UTC}
		r := p.Parse(msg, now)
		if !bytes.Contains(msg, r.Body) || !bytes.Contains(msg, []byte(r.Tag)) || len(r.Metadata) > 4 || len(r.Labels) > 5 {
			t.Fatalf("%q: %s", msg, show(r))
		}
		for _, l := range r.Labels[min(2, len(r.Labels)):] {
			if !bytes.Contains(msg, []byte(l.Value)) || l.Value == "" {
				t.Fatalf("%q: %s", msg, show(r))
			}
		}
		if first := show(r); show(p.Parse(msg, now)) != first {
			t.Fatalf("%q: parsing it a second time gives another record", msg)
		}
	})
}

// The messages that a framer finds do not depend on the sizes of the reads. A line contains LF or
// NUL only at its end.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("<13>one\n9 <13>a\nb\nc<13>two\r\n\n7 <13>3 d"), 5)
	f.Add([]byte("2026-01-02\n99999999999 x"), 3)
	f.Add([]byte("45 items\n12 <13>with text5 <13>x\n"), 12)
	f.Add([]byte("<12>one\x00<11>two\x00\n\x00\x009 <13>a\nb\x00c\x00<13>three\r\n\x00<13>last\x00"), 8)
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		if cut %= len(in) + 1; cut < 0 {
			cut = -cut
		}
		frames := func(parts ...[]byte) (out []string) {
			var fr framer
			var buf []byte
			for _, p := range parts {
				for buf = append(buf, p...); ; {
					head, size := fr.next(buf)
					if size < 0 || head+size > len(buf) {
						break
					}
					if head+size == 0 {
						t.Fatal("the framer returned a message without bytes")
					}
					if i := bytes.IndexAny(buf[:size], "\n\x00"); head == 0 && i != size-1 {
						t.Fatalf("line %q does not contain LF or NUL only at its end", buf[:size])
					}
					out = append(out, string(buf[head:head+size]))
					buf = buf[head+size:]
				}
			}
			return append(out, string(buf))
		}
		if a, b := frames(in), frames(in[:cut], in[cut:]); !slices.Equal(a, b) {
			t.Fatalf("with one read: %q; with two: %q", a, b)
		}
	})
}
