package otlp

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	collogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/otlp"
)

// OpenTelemetry's own protobuf decoder, which rejects invalid UTF-8, accepts the requests.
func TestProto(t *testing.T) {
	var got []byte
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { got, _ = io.ReadAll(r.Body) }))
	defer srv.Close()
	log, err := forebay.New(otlp.To(srv.URL, otlp.Resource("a\xff", "b\xff"), forebay.Configure(func(c *otlp.Config) { c.Compression = "none" })))
	if err != nil {
		t.Fatal(err)
	}
	log.WithGroup("g\xff").Warn("m\xff", slog.String("k\xff", "v\xff"), slog.Any("l", []any{strings.Repeat("x", 300), "y\xff", 1.5, nil}))
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	var req collogs.ExportLogsServiceRequest
	if err := proto.Unmarshal(got, &req); err != nil {
		t.Fatal(err)
	}
	rec := req.ResourceLogs[0].ScopeLogs[0].LogRecords[0]
	group := rec.Attributes[0].Value.GetKvlistValue().Values
	if rec.Body.GetStringValue() != "m\ufffd" || rec.SeverityNumber != 13 || rec.Attributes[0].Key != "g\ufffd" ||
		group[0].Key != "k\ufffd" || group[0].Value.GetStringValue() != "v\ufffd" || len(group[1].Value.GetArrayValue().Values) != 4 || len(rec.ProtoReflect().GetUnknown()) > 0 {
		t.Errorf("got %v", rec)
	}
}

// FuzzProto checks that the decoder accepts every record and returns its text.
func FuzzProto(f *testing.F) {
	x, err := otlp.New(otlp.Config{URL: "http://h"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("key", "text", int64(-1), 1.5, []byte{1})
	f.Add("a\xff", "\xff", int64(1<<62), 0.0, []byte(nil))
	f.Fuzz(func(t *testing.T, key, text string, i int64, fl float64, b []byte) {
		r := &encode.Record{Message: text, Level: slog.Level(i % 40), Attrs: []slog.Attr{slog.String(key, text), slog.Int64(key, i), slog.Float64(key, fl), slog.Any(key, b),
			slog.Group(key, slog.Any(text, map[string]any{key: []any{text, i}}))}}
		rec, _, err := x.Encoder().Scope().WithGroup(text).WithAttrs(r.Attrs).Append(nil, r)
		if err != nil {
			t.Fatal(err)
		}
		body := protowire.AppendTag(nil, 1, protowire.BytesType)
		body = protowire.AppendBytes(body, append(protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.BytesType), uint64(len(rec))), rec...))
		var req collogs.ExportLogsServiceRequest
		if err := proto.Unmarshal(body, &req); err != nil {
			t.Fatalf("%v: %x", err, rec)
		}
		got := req.ResourceLogs[0].ScopeLogs[0].LogRecords[0]
		if want := strings.ToValidUTF8(text, "\ufffd"); utf8.ValidString(text) && got.Body.GetStringValue() != want {
			t.Errorf("body %q, not %q", got.Body.GetStringValue(), want)
		}
	})
}
