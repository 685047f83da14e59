package program

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/internal/outputhook"
	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/internal/testkit/race"
)

// forwardTarget opens a Forward destination. to is its address, and args contains its flags.
func forwardTarget(t *testing.T, to string, args ...string) (*dest.Target, error) {
	t.Helper()
	return openAs(t, dest.All(), to, args...)
}

func TestForwardSendsLinesAsRecords(t *testing.T) {
	var got bytes.Buffer
	done := make(chan string, 1)
	auth := &testkit.ForwardAuth{Hostname: "s", Key: "key", Nonce: []byte("n"), Auth: []byte("a"), User: "u", Password: "p"}
	f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
		if ok, _ := c.Handshake(auth); !ok {
			return
		}
		m, err := c.Next()
		if err != nil {
			return
		}
		got.WriteString(m.Tag + " " + m.Compressed + "\n")
		for _, e := range m.Entries {
			got.Write(append(fluent.Codec().AppendJSON(nil, e, batch.Meta{}), '\n'))
		}
		done <- got.String()
		c.Ack(m.Chunk)
		c.Next()
	}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.Serve(l)
	defer f.Close()
	key, pass := filepath.Join(t.TempDir(), "key"), filepath.Join(t.TempDir(), "pass")
	os.WriteFile(key, []byte("key\n"), 0o600)
	os.WriteFile(pass, []byte("p\n"), 0o600)
	tg, err := forwardTarget(t, "forward://"+l.Addr().String(), "--tag", "app.x", "--compress", "gzip",
		"--shared-key-file", key, "--user", "u", "--password-file", pass)
	if err != nil {
		t.Fatal(err)
	}
	b := batch.Batch{Codec: tg.Codec}
	encode := tg.NewEncoder()
	for _, line := range []string{`{"a":1,"time":"2026-01-02T03:04:05Z"}`, `level=warn n=5 time=2026-01-02T03:04:06Z`, "2026-01-02T03:04:07Z plain text"} {
		var ev record.Event
		(&record.Parser{Location: time.UTC}).Parse([]byte(line+"\n"), &ev)
		rec, m, err := encode(nil, &ev)
		if err != nil {
			t.Fatal(err)
		}
		b.Append(rec, 0, m)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	send, closeDest := outputhook.Direct(tg.Dest)
	if o := send(ctx, &b); o.Err() != nil {
		t.Fatal(o)
	}
	text := <-done
	for _, want := range []string{"app.x gzip\n", `"time":"2026-01-02T03:04:05Z","record":{"a":1`, `"time":"2026-01-02T03:04:06Z","record":{"level":"warn","n":5`, `"time":"2026-01-02T03:04:07Z"`, "plain text"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in\n%s", want, text)
		}
	}
	if err := closeDest(ctx); err != nil {
		t.Error(err)
	}
}

func TestForwardErrorsNameForm(t *testing.T) {
	for to, want := range map[string]string{
		"forward:host":         "write forward://HOST:PORT",
		"forward://":           "the server is missing",
		"forward+tls:host":     "write forward+tls://HOST:PORT",
		"forward+unix:":        "write forward+unix:PATH",
		"forward://host:99999": "the port must be",
		"forward://u:secret@h": "use --user and --password-file",
	} {
		_, err := forwardTarget(t, to)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", to, err)
		}
	}
	if _, err := forwardTarget(t, "forward://h", "--compress", "zstd"); err == nil || !strings.Contains(err.Error(), "only forebay-all has it; use gzip") {
		t.Error(err)
	}
	if _, err := forwardTarget(t, "forward://h", "--shared-key-file", "/nonexistent"); err == nil {
		t.Error("a key file that is not there")
	}
}

// An error about an option contains the name of its flag, even if the server cannot be reached.
func TestForwardFlagErrors(t *testing.T) {
	dir := t.TempDir()
	empty, key := filepath.Join(dir, "empty"), filepath.Join(dir, "key")
	os.WriteFile(empty, []byte("\n"), 0o600)
	os.WriteFile(key, []byte("k\n"), 0o600)
	for _, tt := range []struct {
		to   string
		args []string
		want string // "" if no error is expected
	}{
		{"forward://h", []string{"--tag", ""}, "--tag is empty"},
		{"forward://h", []string{"--tls-ca", key}, "forward+tls:"},
		{"forward+unix:/s", []string{"--tls-cert", key}, "--tls-cert is for tls:, "},
		{"forward+tls://h", []string{"--tls-ca", key}, "cannot use --tls-ca "},
		{"forward+tls://h", []string{"--tls-cert", key}, "--tls-cert and --tls-key belong together"},
		{"forward://h", []string{"--shared-key-file", empty}, "--secured"},
		{"forward://h", []string{"--shared-key-file", empty, "--secured"}, ""},
		{"forward://h", []string{"--secured"}, ""},
		{"forward://h", []string{"--password-file", key}, "--password-file is given without --user"},
		{"forward://h", []string{"--user", "u", "--password-file", empty}, "--password-file: "},
	} {
		for _, more := range [][]string{nil, {"--dry-run"}} {
			tg, err := forwardTarget(t, tt.to, append(more, tt.args...)...)
			if tt.want == "" {
				if err != nil {
					t.Errorf("%s %q: %v", tt.to, tt.args, err)
				} else {
					tg.Close()
				}
				continue
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "Config") {
				t.Errorf("%s %q: %v", tt.to, tt.args, err)
			}
		}
	}
}

// --tag-from names the field that contains the tag of an event. If the value is not a valid tag,
// the event has the tag of --tag.
func TestForwardTagFrom(t *testing.T) {
	tgt, err := forwardTarget(t, "forward://h", "--tag", "other", "--tag-from", "tag")
	if err != nil {
		t.Fatal(err)
	}
	defer tgt.Close()
	encode := tgt.NewEncoder()
	for _, tt := range []struct {
		line string
		more []slog.Attr
		want string // expected definition of the stream
		rec  string
	}{
		{`{"n":1}`, []slog.Attr{slog.String("tag", "shop.web"), slog.String("pod", "p")}, "shop.web", `{"n":1,"pod":"p"}`},
		{`{"n":1,"tag":"own"}`, []slog.Attr{slog.String("tag", "shop.web")}, "shop.web", `{"n":1,"tag":"own"}`},
		{`{"n":1,"tag":"own"}`, nil, "own", `{"n":1,"tag":"own"}`},
		{`{"n":2}`, nil, "", `{"n":2}`},
		{`{"n":3}`, []slog.Attr{slog.String("tag", "a\x01b")}, "", `{"n":3}`},
		{`{"n":4}`, []slog.Attr{slog.String("tag", strings.Repeat("x", 100_000))}, "", `{"n":4}`},
	} {
		var ev record.Event
		new(record.Parser).Parse([]byte(tt.line+"\n"), &ev)
		ev.More = tt.more
		rec, m, err := encode(nil, &ev)
		if err != nil {
			t.Fatal(err)
		}
		def, ok := tgt.Dictionary().AppendStream(nil, m.Stream)
		if text := string(tgt.Codec.AppendJSON(nil, rec, m)); !ok || string(def) != tt.want || !strings.Contains(text, tt.rec) {
			t.Errorf("%s: tag %q, %s; want %q, %s", tt.line, def, text, tt.want, tt.rec)
		}
		if len(ev.More) != len(tt.more) {
			t.Errorf("%s: the event has lost what was known of it", tt.line)
		}
	}
}

// A line of text becomes the same event as the JSON object of the line.
func TestForwardText(t *testing.T) {
	encode, asJSON := dest.NewForwardEncoder("tag"), record.NewEncoder(record.AsJSON)
	for _, line := range []string{
		"plain", "2026-11-28T10:11:12.123456789+01:00 ERROR said \"no\"", "FATAL a\tb\\c", "TRACE \xff\xfe", "é\u2028", strings.Repeat("\x00", 300),
	} {
		for _, more := range [][]slog.Attr{nil, {
			slog.String("pod", "a\xff"), slog.Int("level", 3), slog.Bool("partial", true), slog.String("tag", "web"), slog.String("msg", "other"),
			slog.Float64("f", 1.5), slog.Uint64("u", math.MaxUint64), slog.Any("n", json.Number("1.10")), slog.Any("huge", json.Number("1e400")),
			slog.Any("list", json.RawMessage(`[1, {"a": null}]`)), slog.Any("empty", json.RawMessage("{}")), slog.Group("g", "a", 1, "b", "é\n"),
		}} {
			ev := record.Event{}
			new(record.Parser).Parse([]byte(line+"\n"), &ev)
			ev.Format, ev.More = record.Text, more
			at := time.Unix(1_800_000_000, 5)
			if ev.Time.IsZero() {
				ev.Time = at
			}
			rec, m, err := encode(nil, &ev)
			if err != nil {
				t.Fatal(err)
			}
			tag := ""
			if more != nil {
				tag = "web"
				ev.More = slices.DeleteFunc(slices.Clone(more), func(a slog.Attr) bool { return a.Key == "tag" })
			}
			js, err := asJSON.Append(nil, &ev)
			if err != nil {
				t.Fatal(err)
			}
			want, stream, err := fluent.AppendJSONEvent(nil, tag, ev.Time, js)
			codec := fluent.Codec()
			got, wanted := codec.AppendJSON(nil, rec, m), codec.AppendJSON(nil, want, m)
			if err != nil || !bytes.Equal(got, wanted) || m.Stream != stream {
				t.Errorf("%q: %s, stream %d; want %s, stream %d, %v", line, got, m.Stream, wanted, stream, err)
			}
		}
	}
}

func TestForwardTextAllocatesNothing(t *testing.T) {
	race.Skip(t)
	encode := dest.NewForwardEncoder("tag")
	var ev record.Event
	new(record.Parser).Parse([]byte(`2026-11-28T10:11:12Z ERROR said "no"`+"\n"), &ev)
	ev.More = []slog.Attr{slog.String("tag", "web"), slog.String("pod", "p")}
	var rec []byte
	if n := testing.AllocsPerRun(100, func() { rec, _, _ = encode(rec[:0], &ev) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// An event whose time the protocol cannot represent is sent with the current time.
func TestForwardReplacesInvalidTimes(t *testing.T) {
	for _, tagFrom := range []string{"", "tag"} {
		encode, codec := dest.NewForwardEncoder(tagFrom), fluent.Codec()
		for _, line := range []string{
			"1969-12-31T23:59:59Z ERROR a\n", `{"time":"2200-01-01T00:00:00Z","msg":"a"}` + "\n", `{"tag":"web","ts":-5000,"msg":"a"}` + "\n",
		} {
			var ev record.Event
			new(record.Parser).Parse([]byte(line), &ev)
			if strings.Contains(line, "-5000") {
				ev.Time = time.Unix(-5000, 0)
			}
			was := []byte("before")
			before := time.Now()
			rec, m, err := encode(was, &ev)
			if err != nil || !bytes.HasPrefix(rec, was) {
				t.Errorf("%s: %q, %v", line, rec, err)
				continue
			}
			text := string(codec.AppendJSON(nil, rec[len(was):], m))
			_, at, _ := strings.Cut(text, `"time":"`)
			at, _, _ = strings.Cut(at, `"`)
			if when, err := time.Parse(time.RFC3339Nano, at); err != nil || when.Before(before) || when.After(time.Now()) || !strings.Contains(text, `"record":{`) {
				t.Errorf("%s: %s (%v)", line, text, err)
			}
		}
	}
}
