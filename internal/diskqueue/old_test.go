package diskqueue_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/internal/diskqueue"
	"github.com/forebay-log/forebay/internal/outputhook"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/loki"
	"github.com/forebay-log/forebay/spool"
)

// forwardPeer returns a client of a Forward server that accepts everything.
func forwardPeer(t *testing.T) (deliver.Destination, *spool.Options) {
	f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
		for {
			m, err := c.Next()
			if err != nil {
				return
			}
			c.Ack(m.Chunk)
		}
	}}
	t.Cleanup(f.Close)
	c, err := fluent.New(fluent.Config{Dial: f.Dial})
	if err != nil {
		t.Fatal(err)
	}
	return c, &spool.Options{Codec: func(string, uint32) batch.Codec { return fluent.Codec() }}
}

// lokiPeer returns a function that does the same as forwardPeer, but for a Loki server. w is the
// option for the format of the requests.
func lokiPeer(w string) func(t *testing.T) (deliver.Destination, *spool.Options) {
	return func(t *testing.T) (deliver.Destination, *spool.Options) {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
		t.Cleanup(srv.Close)
		p, err := loki.New(loki.Config{URL: srv.URL, Wire: w, Limits: loki.Limits{MaxAge: -1}})
		if err != nil {
			t.Fatal(err)
		}
		var o deliver.OutputOptions
		p.Traits().Defaults(&o)
		return p, &spool.Options{Codec: o.CodecFor}
	}
}

// The current drivers deliver spools of the first public format unchanged. The spools have one
// acknowledged and two pending batches.
func TestSpoolsOfEarlierVersions(t *testing.T) {
	for _, c := range []struct {
		name string
		open func(*testing.T) (deliver.Destination, *spool.Options)
	}{
		{"forward", forwardPeer},
		{"loki-protobuf", lokiPeer("protobuf")}, {"loki-protobuf", lokiPeer("json")},
		{"loki-json", lokiPeer("json")}, {"loki-json", lokiPeer("protobuf")},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "old", c.name))); err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(filepath.Join("testdata", "old", c.name+".want"))
			if err != nil {
				t.Fatal(err)
			}
			dest, o := c.open(t)
			traits := dest.Traits()
			o.Streams = traits.Dictionary
			o.Accepts = func(contentType string, _ uint32) bool { return traits.Accepts == nil || traits.Accepts(contentType) }
			s, err := diskqueue.Open(dir, o)
			if err != nil {
				t.Fatal(err)
			}
			send, closeDest := outputhook.Direct(dest)
			to := &batchPrinter{to: send}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if done, err := s.Replay(ctx, to.send); err != nil {
				t.Error(done, err)
			}
			if got := to.text.String(); got != string(want) {
				t.Errorf("delivered\n%swant\n%s", got, want)
			}
			if a := s.Account(); a.Recovered != 16 || a.Delivered != 16 || a.Pending.Total() != 0 {
				t.Errorf("%s", a)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if err := closeDest(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

// A batchPrinter passes batches to a function and writes their content as text.
type batchPrinter struct {
	to    func(context.Context, *batch.Batch) batch.Outcome
	text  bytes.Buffer
	batch int
}

func (s *batchPrinter) send(ctx context.Context, b *batch.Batch) batch.Outcome {
	s.batch++
	for _, r := range b.All() {
		fmt.Fprintf(&s.text, "%d %d %d %s\n", s.batch+1, r.Time, r.Level, b.Codec.AppendJSON(nil, r.Data, r.Meta))
	}
	return s.to(ctx, b)
}
