package loki

import (
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/internal/labelname"
)

// No response causes a panic, reveals a secret in an error, or refuses a record that was not in the
// request. A response is a success only if its status is 204.
func FuzzReply(f *testing.F) {
	for _, s := range []struct {
		status      int
		text, after string
	}{
		{204, "", ""},
		{260, "ingestion blocked", ""},
		{400, "entry for stream '{a=\"b\"}' has timestamp too old: 2020-01-01T00:00:00Z, oldest acceptable timestamp is: 2026-01-01T00:00:00Z", ""},
		{400, "entry with timestamp 2020-01-01 00:00:00 ignored, reason: 'entry too far behind, entry timestamp is: 2020-01-01T00:00:00Z, oldest acceptable timestamp is: 2020-01-01T00:00:01Z'", ""},
		{400, "timestamp too new: 2030-01-01T00:00:00Z", ""},
		{400, "Max entry size '1' bytes exceeded", ""},
		{401, "no org id, hunter22", ""},
		{413, "", ""},
		{429, "Ingestion rate limit exceeded for user fake (limit: 10 bytes/sec) while attempting to ingest '2' lines totaling '99' bytes", "7"},
		{429, "Per stream rate limit exceeded (limit: 1.5KB/sec)", "Fri, 31 Dec 1999 23:59:59 GMT"},
		{429, "Maximum active stream limit exceeded", ""},
		{500, "rpc error: code = ResourceExhausted desc = grpc: received message larger than max (5 vs. 4)", ""},
		{503, "\xff", "-1"},
	} {
		f.Add(s.status, s.text, s.after)
	}
	const secret = "hunter22"
	s := sinkFor(f, new(peer), Config{HTTP: httpclient.Options{Username: "u", Password: secret}})
	p := newPush()
	now := time.Now().UnixNano()
	for i := range 5 {
		p.recs = append(p.recs, rec{time: now + int64(i)*int64(time.Hour), line: int32(i)})
	}
	segs := []segment{{st: s.streams.get(0), order: []int32{0, 1, 2, 3, 4}}}
	f.Fuzz(func(t *testing.T, status int, text, after string) {
		a := s.push.interpret(&http.Response{StatusCode: status, Header: http.Header{"Retry-After": {after}}}, []byte(text), true, 1000, segs, 1)
		if fine := status == 204; fine != (a.kind == accepted) || fine != (a.err == nil) {
			t.Fatalf("status %d: got kind %d, %v", status, a.kind, a.err)
		}
		if a.err == nil {
			return
		}
		if msg := a.err.Error(); strings.Contains(msg, secret) || !utf8.ValidString(msg) || len(msg) > 8<<10 {
			t.Errorf("error %q", msg)
		}
		if a.after < 0 {
			t.Errorf("retry delay is %v", a.after)
		}
		if (a.kind == entriesRefused) != (a.refusals != nil) {
			t.Errorf("kind %d with refusals %v", a.kind, a.refusals)
		}
		if a.kind == entriesRefused {
			whys, n, all := a.refusals.mark(p, segs[0].order)
			for _, why := range whys {
				if why != notRefused && why >= reasons {
					t.Errorf("unexpected reason %d", why)
				}
				if why != notRefused {
					n--
				}
			}
			if n != 0 || all && len(whys) != len(segs[0].order) {
				t.Errorf("mark refused %d entries, reasons are %v", n, whys)
			}
		}
	})
}

var lokiName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// readLabels parses a label set like Loki: names and quoted values in braces. If Loki would refuse
// the label set, readLabels returns an error.
func readLabels(text string) (map[string]string, error) {
	rest, ok := strings.CutPrefix(text, "{")
	if !ok || !utf8.ValidString(text) {
		return nil, fmt.Errorf("no label set")
	}
	out := map[string]string{}
	for {
		name, after, ok := strings.Cut(rest, "=")
		if !ok || !lokiName.MatchString(name) || strings.HasPrefix(name, "__") {
			return nil, fmt.Errorf("name %q", name)
		}
		quoted, err := strconv.QuotedPrefix(after)
		if err != nil || quoted[0] != '"' {
			return nil, fmt.Errorf("value of %s: %v", name, err)
		}
		value, _ := strconv.Unquote(quoted)
		if _, twice := out[name]; twice || value == "" {
			return nil, fmt.Errorf("%s occurs twice or is empty", name)
		}
		if strings.ContainsRune(value, '\ufffd') {
			return nil, fmt.Errorf("value of %s: invalid UTF-8 rune", name)
		}
		out[name] = value
		rest = after[len(quoted):]
		if rest == "}" {
			return out, nil
		}
		if rest, ok = strings.CutPrefix(rest, ", "); !ok {
			return nil, fmt.Errorf("%q follows %s", rest, name)
		}
	}
}

// readable returns the given label value after the replacements documented at [Config.Labels].
func readable(value string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(value, "?"), "\ufffd", "?")
}

// Loki can parse the label set for any names and values of labels and attributes. The label set is
// within the limits and contains the expected values.
func FuzzLabels(f *testing.F) {
	f.Add("a.b", "x", "user", "u\"1\"", "extra", "\n", 3)
	f.Add("__name__", "\xff", "1", "é", "level", "x", -1)
	f.Add("app", "\u2028", "app", "other", "a-b", "", 1)
	f.Fuzz(func(t *testing.T, name, value, attr1, value1, attr2, value2 string, limit int) {
		c := Config{
			Labels:     map[string]string{name: value},
			LabelAttrs: []string{attr1, attr2},
			BatchBytes: 4 << 10,
			Limits:     Limits{MaxLabels: 2 + max(limit, 0)%20, MaxLabelValue: 64},
		} // small memory makes a run fast
		c.URL = "http://x"
		if validate(c) != nil {
			return // the Config is invalid, so nothing is sent
		}
		rec := encode.Record{Time: time.Now(), Message: "m", Attrs: []slog.Attr{slog.String(attr1, value1), slog.String(attr2, value2)}}
		for _, w := range []string{wireProtobuf, wireJSON} {
			c.Wire = w
			_, text := encodeOne(t, c, rec)
			if w == wireJSON {
				continue // encodeOne has decoded the labels as a JSON object
			}
			got, err := readLabels(text)
			if err != nil || len(got) > c.Limits.MaxLabels {
				t.Fatalf("%s: %v", text, err)
			}
			for n, v := range got {
				if len(v) > c.Limits.MaxLabelValue {
					t.Errorf("%s has %d bytes", n, len(v))
				}
			}
			if want := readable(value); got[labelname.Of(name)] != want {
				t.Errorf("%s: label is %q, want %q", text, got[labelname.Of(name)], want)
			}
			if n := labelname.Of(attr1); n != labelname.Of(name) && n != "level" && n != labelname.Of(attr2) && !strings.Contains(attr1, ".") {
				if v, is := got[n]; is && v != readable(value1) {
					t.Errorf("%s: label %s is %q, want %q", text, n, v, value1)
				}
			}
		}
	})
}
