package netsink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/testkit"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustNew(t testing.TB, destination string, o *Options) *Sink {
	t.Helper()
	s, err := New(destination, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustClose(t testing.TB, s *Sink) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
}

// plain makes a batch of the given records.
func plain(recs ...string) *batch.Batch {
	var build batch.Builder
	for i, r := range recs {
		build.Append([]byte(r), uint64(i+1), batch.Meta{})
	}
	return build.Batch(nil)
}

// whole returns the whole lines of all connections in order, and fails the test
// if a line is torn anywhere but at the end of a connection.
func whole(t testing.TB, conns [][]byte) (lines []string) {
	t.Helper()
	for _, c := range conns {
		for len(c) > 0 {
			line, rest, ok := bytes.Cut(c, []byte{'\n'})
			if !ok {
				break // torn by the end of the connection
			}
			lines = append(lines, string(line))
			c = rest
		}
	}
	return lines
}

func TestLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n testkit.Network
		p := n.Listen("peer:1", nil)
		s := mustNew(t, "tcp://peer:1", &Options{Dial: n.Dial})
		for _, b := range []*batch.Batch{plain("a\n", "b\n"), plain("c", "", "d\n", "\n"), plain(), plain("e\n")} {
			if err := s.Send(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		two := plain("f\n")
		two.Add(batch.NewRun([]byte("g\n"), []batch.Slot{{Len: 2}}))
		if err := s.Send(t.Context(), two); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := string(bytes.Join(p.Got(), nil)); got != "a\nb\nc\n\nd\n\ne\nf\ng\n" {
			t.Errorf("got %q", got)
		}
		if p.Conns() != 1 || s.Stats() != (Stats{Connected: true, Connects: 1}) {
			t.Errorf("%d connections, stats %+v", p.Conns(), s.Stats())
		}
		mustClose(t, s)
		if err := s.Send(t.Context(), plain("h\n")); !errors.Is(err, batch.ErrClosed) {
			t.Errorf("Send after Close: %v", err)
		}
		mustClose(t, s)
		p.Close()
	})
}

// A failure anywhere in a batch is told to the record: those wholly written are
// settled, and the rest arrives whole on the next connection.
func TestPartialWrite(t *testing.T) {
	recs := []string{"first\n", "second\n", "third\n", "fourth\n"}
	all := strings.Join(recs, "")
	for _, newlines := range []bool{true, false} { // the direct way, and the framed one
		for limit := 1; limit < len(all); limit++ {
			synctest.Test(t, func(t *testing.T) {
				var n testkit.Network
				p := n.Listen("peer:1", func(conn int) testkit.Behaviour {
					if conn == 0 {
						return testkit.Behaviour{Limit: limit, Chunk: 3}
					}
					return testkit.Behaviour{}
				})
				s := mustNew(t, "tcp://peer:1", &Options{Dial: n.Dial})
				b := plain(recs...)
				if !newlines {
					b = plain("first", "second\n", "third", "fourth")
				}
				err := s.Send(t.Context(), b)
				e := batch.Inspect(err)
				if err == nil || !batch.Retryable(err) || e.Acked != strings.Count(all[:limit], "\n") {
					t.Fatalf("limit %d: %v, %d records", limit, err, e.Acked)
				}
				if err := s.Send(t.Context(), b.Slice(nil, e.Acked, b.Len())); err != nil {
					t.Fatalf("limit %d: %v", limit, err)
				}
				synctest.Wait()
				if got := strings.Join(whole(t, p.Got()), "\n") + "\n"; got != all {
					t.Errorf("limit %d: got %q", limit, got)
				}
				mustClose(t, s)
				p.Close()
			})
		}
	}
}

// The peer's end is noticed without writing to it.
func TestPeerGoneBetweenSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n testkit.Network
		p := n.Listen("peer:1", nil)
		s := mustNew(t, "tcp://peer:1", &Options{Dial: n.Dial})
		if err := s.Send(t.Context(), plain("a\n")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		p.Close()
		synctest.Wait()
		if st := s.Stats(); st.Connected {
			t.Errorf("stats %+v", st)
		}
		q := n.Listen("peer:1", nil)
		if err := s.Send(t.Context(), plain("b\n")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := whole(t, append(p.Got(), q.Got()...)); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("got %q", got)
		}
		if st := s.Stats(); st != (Stats{Connected: true, Connects: 2, Lost: 1}) {
			t.Errorf("stats %+v", st)
		}
		mustClose(t, s)
		q.Close()
	})
}

// Without a peer Send fails, and does not try more often than the backoff says.
func TestConnectBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n testkit.Network
		s := mustNew(t, "tcp://peer:1", &Options{Dial: n.Dial})
		began := time.Now()
		waited := false
		for time.Since(began) < 10*time.Minute {
			dials := n.Dials()
			err := s.Send(t.Context(), plain("a\n"))
			e := batch.Inspect(err)
			if err == nil || e.Kind != batch.KindRetry || e.After > DefaultRetryMax || !strings.Contains(err.Error(), "tcp://peer:1") {
				t.Fatalf("%v, after %s", err, e.After)
			}
			if e.After > 0 {
				waited = true
				again := s.Send(t.Context(), plain("a\n"))
				if n.Dials() != dials+1 || batch.Inspect(again).After != e.After {
					t.Fatalf("%d attempts at once", n.Dials()-dials)
				}
			}
			time.Sleep(max(e.After, time.Millisecond))
		}
		if n.Dials() > 300 || !waited {
			t.Errorf("%d attempts in ten minutes", n.Dials())
		}
		p := n.Listen("peer:1", nil)
		if err := s.Send(t.Context(), plain("a\n")); err != nil {
			t.Error(err)
		}
		mustClose(t, s)
		p.Close()
	})
}

// However long the backoff is, it goes on for as long as the peer is away.
func TestLongBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n testkit.Network
		for _, lowest := range []time.Duration{5 * time.Second, 10 * time.Second, 1<<34 + 1, 1000 * time.Hour} {
			highest := 2 * lowest
			s := mustNew(t, "tcp://peer:1", &Options{RetryMin: lowest, RetryMax: highest, Dial: n.Dial})
			long := 0
			for range 100 {
				e := batch.Inspect(s.Send(t.Context(), plain("a\n")))
				if e.Kind != batch.KindRetry || e.After > highest {
					t.Fatalf("%+v", e)
				}
				if e.After > lowest {
					long++
				}
				time.Sleep(e.After)
			}
			if long < 20 {
				t.Errorf("RetryMin %s: %d of 100 delays above it", lowest, long)
			}
			mustClose(t, s)
		}
	})
}

// A peer that stalls is given up when it takes nothing for WriteTimeout; one that
// is merely slow is not.
func TestStallAndDrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n testkit.Network
		release := make(chan struct{})
		p := n.Listen("peer:1", func(conn int) testkit.Behaviour {
			if conn == 0 {
				return testkit.Behaviour{Limit: 7, Stall: release}
			}
			return testkit.Behaviour{Chunk: 16 << 10, Delay: time.Second}
		})
		s := mustNew(t, "tcp://peer:1", &Options{Dial: n.Dial})
		began := time.Now()
		err := s.Send(t.Context(), plain("first\n", "second\n"))
		if e := batch.Inspect(err); e.Kind != batch.KindPrefix || e.Acked != 1 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if d := time.Since(began); d != DefaultWriteTimeout {
			t.Errorf("gave up after %s", d)
		}
		big := plain(slices.Repeat([]string{strings.Repeat("x", 999) + "\n"}, 1000)...)
		began = time.Now()
		if err := s.Send(t.Context(), big); err != nil || time.Since(began) < time.Minute {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		close(release)
		mustClose(t, s)
		p.Close()
	})
}

// Send ends with ctx, whatever the peer does.
func TestSendCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n testkit.Network
		release := make(chan struct{})
		p := n.Listen("peer:1", func(int) testkit.Behaviour { return testkit.Behaviour{Limit: 3, Stall: release} })
		s := mustNew(t, "tcp://peer:1", &Options{Dial: n.Dial})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := s.Send(ctx, plain("a\n", "b\n")); !errors.Is(err, context.DeadlineExceeded) || batch.Inspect(err).Acked != 1 {
			t.Errorf("got %v", err)
		}
		if d := time.Since(began); d != time.Second {
			t.Errorf("took %s", d)
		}
		// While connecting, too.
		hang := mustNew(t, "tcp://peer:1", &Options{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := hang.Send(ctx, plain("a\n")); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 2*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		began = time.Now()
		if err := hang.Send(t.Context(), plain("a\n")); err == nil || time.Since(began) != DefaultDialTimeout {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		close(release)
		mustClose(t, s)
		mustClose(t, hang)
		p.Close()
	})
}

// What the peer sends is thrown away.
func TestGarbageReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n testkit.Network
		p := n.Listen("peer:1", func(int) testkit.Behaviour {
			return testkit.Behaviour{Reply: bytes.Repeat([]byte("HTTP/1.1 400 Bad Request\r\n\x00\xff"), 1000)}
		})
		s := mustNew(t, "tcp://peer:1", &Options{Dial: n.Dial})
		for range 3 {
			if err := s.Send(t.Context(), plain("a\n")); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if got := whole(t, p.Got()); len(got) != 3 || p.Conns() != 1 {
			t.Errorf("got %q over %d connections", got, p.Conns())
		}
		mustClose(t, s)
		p.Close()
	})
}

// Whatever happens to the connections, every record arrives whole at least once,
// in order, and none is made up.
func TestFaultyConnections(t *testing.T) {
	for _, scheme := range []string{"tcp", "syslog+tcp"} {
		synctest.Test(t, func(t *testing.T) {
			rng := testkit.Rand(testkit.Seed(t))
			for range testkit.Rounds(30, 2000) {
				faultyRound(t, scheme+"://peer:1", testkit.Rand(rng.Uint64()))
			}
		})
	}
}

type intner interface {
	IntN(int) int
	Float64() float64
}

func faultyRound(t *testing.T, destination string, rng intner) {
	var n testkit.Network
	var mu sync.Mutex
	roll := func() float64 { mu.Lock(); defer mu.Unlock(); return rng.Float64() }
	pick := func(k int) int { mu.Lock(); defer mu.Unlock(); return rng.IntN(k) }
	p := n.Listen("peer:1", func(int) testkit.Behaviour {
		b := testkit.Behaviour{Limit: 1 + pick(5000)}
		if pick(2) == 0 {
			b.Chunk = 1 + pick(200)
		}
		return b
	})
	prob := roll() / 2
	n.Wrap(func(c net.Conn) net.Conn { return testkit.Faulty(c, testkit.RandomFaults(roll, pick, prob)) })
	s := mustNew(t, destination, &Options{Dial: n.Dial})
	number := 0
	var want []string
	for range 20 {
		var build batch.Builder
		for range 1 + pick(30) {
			number++
			line := fmt.Sprintf("%06d %s", number, strings.Repeat("x", pick(100)))
			want = append(want, line)
			if pick(10) > 0 {
				line += "\n"
			}
			build.Append([]byte(line), uint64(number), batch.Meta{})
		}
		for b := build.Batch(nil); b.Len() > 0; {
			err := s.Send(t.Context(), b)
			if err == nil {
				break
			}
			e := batch.Inspect(err)
			b = b.Slice(nil, e.Acked, b.Len())
			time.Sleep(e.After + 50*time.Millisecond)
		}
	}
	mustCloseAny(s)
	p.Close()
	var got []string
	for _, c := range p.Got() {
		if s.t.syslog {
			msgs, _ := parseCounted(c)
			for _, m := range msgs {
				_, text, _ := strings.Cut(m, " - - ")
				got = append(got, text)
			}
		} else {
			got = append(got, whole(t, [][]byte{c})...)
		}
	}
	last := 0
	seen := map[string]bool{}
	for _, line := range got {
		var at int
		if _, err := fmt.Sscanf(line, "%06d", &at); err != nil || at < 1 || at > number || line != want[at-1] {
			t.Fatalf("made up: %q", line)
		}
		if at > last+1 {
			t.Fatalf("record %d came after %d", at, last)
		}
		last = at
		seen[line] = true
	}
	if len(seen) != number {
		t.Fatalf("%d of %d records arrived", len(seen), number)
	}
}

// mustCloseAny closes s, whose connection may have broken.
func mustCloseAny(s *Sink) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.Close(ctx)
}

// Close beside a Send that hangs ends both.
func TestCloseBesideSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n testkit.Network
		release := make(chan struct{})
		p := n.Listen("peer:1", func(int) testkit.Behaviour { return testkit.Behaviour{Limit: 3, Stall: release} })
		s := mustNew(t, "tcp://peer:1", &Options{Dial: n.Dial, WriteTimeout: time.Hour})
		sent := make(chan error)
		go func() { sent <- s.Send(context.Background(), plain("a\n", "b\n")) }()
		time.Sleep(time.Second)
		began := time.Now()
		_ = s.Close(t.Context())
		if err := <-sent; err == nil || batch.Inspect(err).Acked != 1 || time.Since(began) > closeTimeout {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		close(release)
		p.Close()
	})
}

// A wire form that is no text is refused, by Accepts and by Send.
func TestForeignForm(t *testing.T) {
	s := mustNew(t, "tcp://peer:1", nil)
	for form, want := range map[string]bool{"": true, "text/plain": true, "application/x-ndjson": true,
		"application/logfmt": true, "application/x-msgpack": false} {
		if s.Accepts(form) != want {
			t.Errorf("Accepts(%q) = %t", form, !want)
		}
	}
	b := plain("x")
	b.Codec = binaryCodec{}
	if err := s.Send(t.Context(), b); batch.Inspect(err).Kind != batch.KindFatal {
		t.Errorf("got %v", err)
	}
	if !mustNew(t, "syslog+tcp://peer:1", nil).Accepts("application/x-msgpack") {
		t.Error("syslog takes any form")
	}
}

// binaryCodec is of a form that is no text.
type binaryCodec struct{}

func (binaryCodec) ContentType() string { return "application/x-msgpack" }
func (binaryCodec) AppendJSON(dst, rec []byte, _ batch.Meta) []byte {
	return fmt.Appendf(dst, `{"bytes":%d}`, len(rec))
}
func (binaryCodec) AppendMarker(dst []byte, _ batch.Drops, _ time.Time) []byte { return dst }

func TestParse(t *testing.T) {
	for in, want := range map[string]string{
		"tcp://localhost:5170":           "tcp://localhost:5170",
		"TCP://localhost:5170/":          "tcp://localhost:5170",
		"tls://[::1]:6514":               "tls://[::1]:6514",
		"unix:/run/log.sock":             "unix:/run/log.sock",
		"unix:///run/log.sock":           "unix:/run/log.sock",
		"unix:rel/sock":                  "unix:rel/sock",
		"syslog+tcp://h:514?app=x":       "syslog+tcp://h:514",
		"syslog+tls://h:6514?facility=3": "syslog+tls://h:6514",
		"syslog+unix:/dev/log?hostname=a&app=b&procid=c&msgid=d": "syslog+unix:/dev/log",
	} {
		s, err := New(in, nil)
		if err != nil || s.String() != want {
			t.Errorf("%q: %v, %v", in, s, err)
		}
	}
	for _, in := range []string{
		"", "localhost:5170x", "tcp:localhost:1", "tcp://", "tcp://host", "tcp://:514", "tcp://host:", "tcp://h:1/path",
		"tcp://h:1#f", "tcp://::1:514", "unix:", "udp://h:514", "tcp://h:1?app=x", "syslog+tcp://h:1?color=red",
		"syslog+tcp://h:1?facility=x", "syslog+tcp://h:1?a=%zz", "syslog+udp://h:1", "syslog+tcp://h:1?facility=24",
	} {
		if s, err := New(in, nil); err == nil {
			t.Errorf("%q is read as %v", in, s)
		}
	}
	if _, err := New("tcp://user:secret@h:1", nil); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{DialTimeout: -1}, {WriteTimeout: -1}, {RetryMin: -1}, {RetryMax: -1}, {RetryMin: 2, RetryMax: 1}, {Syslog: Syslog{Facility: "what"}}} {
		if _, err := New("tcp://h:1", &o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}

func TestSyslogMessage(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 891011000, time.FixedZone("", 3600)).UnixNano()
	tests := []struct {
		dest  string
		codec batch.Codec
		rec   string
		meta  batch.Meta
		want  string
	}{
		{"syslog+tcp://h:1", nil, "hello\n", batch.Meta{Time: at}, "<14>1 2026-03-04T04:06:07.891011Z host app 42 - - hello"},
		{"syslog+tcp://h:1?facility=local0&app=shop&hostname=web%201&procid=&msgid=m", nil, "two\nlines\n\n", batch.Meta{Level: slog.LevelError},
			"<131>1 - web_1 shop 42 m - two\nlines\n"},
		{"syslog+tcp://h:1?facility=0", binaryCodec{}, "\x81\xa1", batch.Meta{Level: slog.LevelDebug}, "<7>1 - host app 42 - - {\"bytes\":2}"},
		{"syslog+tcp://h:1", nil, "", batch.Meta{}, "<14>1 - host app 42 - - "},
	}
	for _, tt := range tests {
		s := mustNew(t, tt.dest, &Options{Syslog: Syslog{Hostname: "host", AppName: "app", ProcID: "42"}})
		rec := batch.Record{Data: []byte(tt.rec), Meta: tt.meta}
		if s.o.Syslog.ProcID != "42" { // an empty parameter means the default
			s.o.Syslog.ProcID = "42"
		}
		if got := string(s.o.Syslog.message(nil, tt.codec, &rec)); got != tt.want {
			t.Errorf("got\n%q want\n%q", got, tt.want)
		}
	}
}

func TestSeverity(t *testing.T) {
	for level, want := range map[slog.Level]int{
		-8: 7, slog.LevelDebug: 7, -1: 7, slog.LevelInfo: 6, 1: 6, 2: 5, 3: 5, slog.LevelWarn: 4, 7: 4,
		slog.LevelError: 3, 11: 3, 12: 2, 127: 2,
	} {
		if got := severity(level); got != want {
			t.Errorf("level %d: severity %d, want %d", level, got, want)
		}
	}
}

func TestField(t *testing.T) {
	for in, want := range map[string]string{"": "-", "ok": "ok", "a b\tc": "a_b_c", "grün": "gr_n", "\x00": "_"} {
		if got := field(in, 48); got != want {
			t.Errorf("field(%q) = %q, want %q", in, got, want)
		}
	}
	if got := field(strings.Repeat("x", 100), 32); len(got) != 32 {
		t.Errorf("%d characters", len(got))
	}
}

// parseCounted reads octet-counted messages (RFC 6587 §3.4.1) and returns what is
// left over.
func parseCounted(p []byte) (msgs []string, rest []byte) {
	for {
		head, tail, ok := bytes.Cut(p, []byte{' '})
		var n int
		if !ok || len(head) == 0 || head[0] == '0' {
			return msgs, p
		}
		if _, err := fmt.Sscanf(string(head), "%d", &n); err != nil || n > len(tail) {
			return msgs, p
		}
		msgs = append(msgs, string(tail[:n]))
		p = tail[n:]
	}
}

func TestSyslogOverWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n testkit.Network
		p := n.Listen("peer:514", nil)
		s := mustNew(t, "syslog+tcp://peer:514?hostname=h&app=a&procid=1", &Options{Dial: n.Dial})
		if err := s.Send(t.Context(), plain("one\n", "two\nlines", "")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		msgs, rest := parseCounted(p.Got()[0])
		if want := []string{"<14>1 - h a 1 - - one", "<14>1 - h a 1 - - two\nlines", "<14>1 - h a 1 - - "}; !slices.Equal(msgs, want) || len(rest) > 0 {
			t.Errorf("got %q, left over %q", msgs, rest)
		}
		mustClose(t, s)
		p.Close()
	})
}

// A batch costs a few allocations, a record none.
func TestAllocs(t *testing.T) {
	for _, destination := range []string{"tcp://h:1", "syslog+tcp://h:1"} {
		client, server := net.Pipe()
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = io.Copy(io.Discard, server)
		}()
		s := mustNew(t, destination, &Options{Dial: func(context.Context, string, string) (net.Conn, error) { return client, nil }})
		b := new(testkit.Model).Batch(300, 200, batch.Meta{Time: 1})
		if got := testing.AllocsPerRun(50, func() {
			if err := s.Send(context.Background(), b); err != nil {
				t.Fatal(err)
			}
		}); got > 10 { // of context.AfterFunc and, per write, the deadlines of net.Pipe
			t.Errorf("%s: %v allocations for 300 records", destination, got)
		}
		mustClose(t, s)
		<-gone
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"tcp://h:1", "unix:/x", "syslog+tls://[::1]:6514?app=a&facility=local7", "tcp://u:p@h:1", "a:b", ":"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		s, err := New(in, nil)
		if err != nil {
			return
		}
		again, err := New(s.String(), nil)
		if err != nil || again.String() != s.String() || again.t.network != s.t.network || again.t.address != s.t.address {
			t.Errorf("%q is read as %q, and that as %v, %v", in, s, again, err)
		}
		for _, f := range []string{s.o.Syslog.Hostname, s.o.Syslog.AppName, s.o.Syslog.ProcID, s.o.Syslog.MsgID} {
			if f == "" || len(f) > 255 || strings.ContainsFunc(f, func(r rune) bool { return r <= ' ' || r > '~' }) {
				t.Errorf("%q: field %q", in, f)
			}
		}
	})
}

// Framed records are read back as they were, whatever they hold.
func FuzzFrame(f *testing.F) {
	f.Add([]byte("one\n"), []byte("two\nlines"), int64(1), 8)
	f.Add([]byte{}, []byte("12 x"), int64(0), -8)
	f.Fuzz(func(t *testing.T, a, b []byte, at int64, level int) {
		s := mustNew(t, "syslog+tcp://h:1?hostname=h&app=a&procid=1", nil)
		for _, data := range [][]byte{a, b} {
			s.frame(nil, &batch.Record{Data: data, Meta: batch.Meta{Time: at, Level: slog.Level(level)}})
		}
		msgs, rest := parseCounted(s.buf)
		if len(msgs) != 2 || len(rest) != 0 {
			t.Fatalf("%d messages, %q left over", len(msgs), rest)
		}
		for i, data := range [][]byte{a, b} {
			_, text, ok := strings.Cut(msgs[i], " h a 1 - - ")
			if want := string(trimNewline(data)); !ok || text != want {
				t.Errorf("got %q, want %q", text, want)
			}
		}
	})
}
