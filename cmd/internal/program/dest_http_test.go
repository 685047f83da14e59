package program

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/slab"
)

// Lines are sent to an HTTP server with the path, headers and authentication that the flags set.
// Each line has an id.
func TestHTTPDestinationFollowsFlags(t *testing.T) {
	var got []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		body, _ := io.ReadAll(z)
		got = append(got, fmt.Sprint(r.URL.Path, r.URL.Query()["pipeline"], r.Header["X-Team"], user, password), string(body))
		items := strings.Repeat(`{"create":{"status":201}},`, strings.Count(string(body), `{"create"`))
		fmt.Fprintf(w, `{"errors":false,"items":[%s]}`, strings.TrimSuffix(items, ","))
	}))
	defer srv.Close()
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("hunter22\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tgt, err := openAs(t, dest.HTTPDests(), srv.URL+"/logs-x", "--api", "opensearch", "--user", "me", "--password-file", file, "--header", "X-Team: shop", "--param", "pipeline=parse")
	if err != nil {
		t.Fatal(err)
	}
	if o := dest.NewSpec(); o.SlabOptions("x", tgt, 1<<10).FlushLevel != slab.NoFlushLevel {
		t.Error("FlushLevel is set: each error would be a separate request")
	}
	w, err := deliver.NewOutput(tgt.Dest, &deliver.OutputOptions{Codec: tgt.Codec, OnError: func(e batch.Event) { t.Error(e) }})
	if err != nil {
		t.Fatal(err)
	}
	p, enc := record.Parser{}, tgt.NewEncoder()
	for _, line := range []string{`{"time":"2026-01-02T03:04:05Z","msg":"a"}`, "plain"} {
		var ev record.Event
		p.Parse([]byte(line+"\n"), &ev)
		rec, m, err := enc(nil, &ev)
		if err == nil {
			err = w.WriteRecord(rec, m)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if a := w.Account(); a.Delivered != 2 || len(got) != 2 || got[0] != "/logs-x/_bulk[parse] [shop]mehunter22" {
		t.Fatalf("%v, %q", a, got)
	}
	lines := strings.Split(got[1], "\n")
	if len(lines) != 5 || !strings.Contains(lines[0], `-1"}}`) || lines[1] != `{"@timestamp":"2026-01-02T03:04:05Z","time":"2026-01-02T03:04:05Z","message":"a"}` || !strings.Contains(lines[3], `"message":"plain"`) {
		t.Errorf("%q", lines)
	}
}

// A line without a time gets the time at which it was read, even if it is sent much later.
func TestHTTPTimeOfArrival(t *testing.T) {
	encode := dest.NewHTTPEncoder()
	before := time.Now().UnixNano()
	_, meta, err := encode(nil, &record.Event{Line: []byte("plain")})
	if err != nil || meta.Time < before || meta.Time > time.Now().UnixNano() {
		t.Errorf("%+v, %v", meta, err)
	}
	at := time.Unix(1500000000, 0)
	if _, meta, err = encode(nil, &record.Event{Line: []byte("plain"), Time: at}); err != nil || meta.Time != at.UnixNano() {
		t.Errorf("%+v, %v", meta, err)
	}
}
