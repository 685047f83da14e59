//go:build unix

package program

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forebay-log/forebay/cmd/internal/input"
	"github.com/forebay-log/forebay/cmd/internal/listen"
	"github.com/forebay-log/forebay/cmd/internal/listen/lokipush"
	"github.com/forebay-log/forebay/internal/values"
)

// The level of a record from Loki is the value of a label or of structured metadata.
func TestLevelOfLabels(t *testing.T) {
	own := func(name, value string) []listen.Label { return []listen.Label{{Name: name, Value: value}} }
	for _, tt := range []struct {
		r     listen.Record
		want  string // level, or "" if there is none
		attrs string
	}{
		{listen.Record{}, "", "[]"},
		{listen.Record{Labels: own("level", "warn")}, "WARN", "[]"},
		{listen.Record{Labels: own("level", "Critical")}, "FATAL", "[]"},
		{listen.Record{Metadata: own("detected_level", "trace")}, "TRACE", "[]"},
		{listen.Record{Metadata: own("detected_level", "unknown")}, "", "[detected_level=unknown]"},
		{listen.Record{Labels: own("level", "warn"), Metadata: own("detected_level", "warning")}, "WARN", "[]"},
		{listen.Record{Labels: own("level", "warn"), Metadata: own("detected_level", "error")}, "WARN", "[detected_level=error]"},
		{listen.Record{Labels: own("Level", "warn")}, "", "[Level=warn]"},
		{listen.Record{Tenant: "t", Labels: own("app", "warn")}, "", "[tenant=t app=warn]"},
	} {
		tt.r.Source = lokipush.Source
		k := new(input.ListenIntake).Hints(&tt.r)
		got := ""
		if k.Level != nil {
			got = values.LevelName(*k.Level)
		}
		if attrs := fmt.Sprint(k.Attrs); got != tt.want || attrs != tt.attrs {
			t.Errorf("%+v: level %s, %s, want %s, %s", tt.r, got, attrs, tt.want, tt.attrs)
		}
		if tt.r.HasLevel {
			t.Error("the record of the listener has changed")
		}
	}
	k := new(input.ListenIntake).Hints(&listen.Record{Source: "syslog", Level: slog.LevelError, HasLevel: true, Metadata: own("level", "info")})
	if got := fmt.Sprint(*k.Level, k.Attrs); got != "ERROR [level=info]" {
		t.Errorf("syslog: %s", got)
	}
}

// The level of a record from Loki determines the outputs that receive it, and is written with the
// record.
func TestLevelOfLokiListener(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	r := startRun(t, "inputs: {l: {type: loki, listen: \"unix:DIR/l\"}}\noutputs:\n"+
		"  all: {to: \"file:DIR/all\", encode: json}\n"+
		"  bad: {to: \"file:DIR/bad\", encode: raw, level: warn}\n"+
		"  one: {to: \"file:DIR/one\", encode: raw, where: {level: fatal}}\n")
	client := http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", filepath.Join(r.dir, "l"))
	}}}
	defer client.CloseIdleConnections()
	now := time.Now().UnixNano()
	body := fmt.Sprintf(`{"streams":[{"stream":{"app":"a","level":"warn"},"values":[["%d","plain"],["%d","{\"a\":1}"]]},`+
		`{"stream":{"app":"b"},"values":[["%d","x",{"detected_level":"critical"}],["%d","{\"b\":1}",{"detected_level":"critical"}],["%d","none"]]}]}`,
		now, now+1, now+2, now+3, now+4)
	r.await("an answer", func() bool {
		resp, err := client.Post("http://forebay/loki/api/v1/push", "application/json", strings.NewReader(body))
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusNoContent {
			t.Fatal(resp.Status)
		}
		return true
	})
	if messages, err := r.end(); err != nil {
		t.Fatalf("%v\n%s", err, messages)
	}
	for _, want := range []string{
		`"level":"WARN","msg":"plain","app":"a"}`, `{"a":1,`, `"level":"WARN","app":"a"}`, `"level":"FATAL","msg":"x","app":"b"}`,
		`"level":"FATAL","app":"b"}`, `"msg":"none","app":"b"}`,
	} {
		if all := r.read("all"); !strings.Contains(all, want) || strings.Count(all, `"level"`) != 4 || strings.Contains(all, "detected") {
			t.Errorf("%s\nwant %s", all, want)
		}
	}
	if got, want := r.read("bad"), "plain\n{\"a\":1}\nx\n{\"b\":1}\nnone\n"; got != want {
		t.Errorf("level: %q, want %q", got, want)
	}
	if got, want := r.read("one"), "x\n{\"b\":1}\n"; got != want {
		t.Errorf("where: %q, want %q", got, want)
	}
}
