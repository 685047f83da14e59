package fluent

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"sort"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/receiver/fluentforwardreceiver"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receivertest"

	log "github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/fluent"
)

// freeAddr returns an address on which no process listens.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func startOTel(t *testing.T, endpoint string) (*consumertest.LogsSink, func()) {
	t.Helper()
	f := fluentforwardreceiver.NewFactory()
	cfg := f.CreateDefaultConfig().(*fluentforwardreceiver.Config)
	cfg.ListenAddress = endpoint
	sink := new(consumertest.LogsSink)
	var r receiver.Logs
	var err error
	if r, err = f.CreateLogs(context.Background(), receivertest.NewNopSettings(f.Type()), cfg, sink); err != nil {
		t.Fatal(err)
	}
	if err := r.Start(context.Background(), componenttest.NewNopHost()); err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop := func() {
		if !stopped {
			stopped = true
			r.Shutdown(context.Background())
		}
	}
	t.Cleanup(stop)
	return sink, stop
}

// records returns the received records as JSON objects of their attributes, sorted.
func records(sink *consumertest.LogsSink) (out []string) {
	for _, ld := range sink.AllLogs() {
		for i := range ld.ResourceLogs().Len() {
			sl := ld.ResourceLogs().At(i).ScopeLogs()
			for j := range sl.Len() {
				for k := range sl.At(j).LogRecords().Len() {
					rec := sl.At(j).LogRecords().At(k)
					m := rec.Attributes().AsRaw()
					if b := rec.Body().AsString(); b != "" {
						m["body"] = b
					}
					js, _ := json.Marshal(m)
					out = append(out, string(js))
				}
			}
		}
	}
	sort.Strings(out)
	return out
}

type sub struct {
	A int    `json:"a"`
	B string `json:"b"`
}

func TestOpenTelemetryReceiver(t *testing.T) {
	for _, tc := range []struct {
		name string
		c    fluent.Config
		unix bool
	}{
		{"acks", fluent.Config{}, false}, {"gzip", fluent.Config{Compress: "gzip"}, false},
		{"no acks", fluent.Config{NoAck: true}, false}, {"unix", fluent.Config{}, true},
		{"integer time, EventTime fields", fluent.Config{IntegerTime: true, TimeFields: "event-time"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			addr := freeAddr(t)
			endpoint := addr
			if tc.unix {
				path := filepath.Join(t.TempDir(), "s")
				addr, endpoint = "unix:"+path, "unix://"+path
			}
			sink, _ := startOTel(t, endpoint)
			tc.c.Servers = []string{addr}
			l, err := fluent.NewLogger(tc.c)
			if err != nil {
				t.Fatal(err)
			}
			const n = 5000
			for i := range n {
				if err := l.Post(fmt.Sprintf("app.%d", i%3), map[string]any{"n": i}); err != nil {
					t.Fatal(err)
				}
			}
			for _, v := range []any{
				nil, "text", map[string]any{"nil": nil, "bin": []byte{1, 2}, "f": 1.5, "list": []any{1, "x", nil}, "t": time.Unix(1, 2), "u": uint64(1 << 63)},
				sub{1, "b"}, map[string]any{"sub": sub{2, "c"}, "deep": map[string]any{"a": map[string]any{"b": 1}}},
			} {
				if err := l.Post("odd", v); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			rep, err := l.Close(ctx)
			if err != nil || rep.Delivered != n+5 {
				t.Fatalf("%v: %s", err, rep.Account)
			}
			for end := time.Now().Add(time.Minute); sink.LogRecordCount() < n+5 && time.Now().Before(end); {
				time.Sleep(10 * time.Millisecond)
			}
			got := records(sink)
			if len(got) != n+5 {
				t.Fatalf("got %d records, want %d", len(got), n+5)
			}
			for _, r := range got {
				if len(r) > 60 {
					t.Log(r)
				}
			}
		})
	}
}

// The receiver is restarted while 5000 records per second are posted. With acknowledgements, no
// record is lost.
func TestOpenTelemetryRestart(t *testing.T) {
	addr := freeAddr(t)
	first, stop := startOTel(t, addr)
	l, err := fluent.NewLogger(fluent.Config{Servers: []string{addr}}, log.WhenFull("block"))
	if err != nil {
		t.Fatal(err)
	}
	const total = 15000
	second := make(chan *consumertest.LogsSink, 1)
	var inFlight uint64 // records possibly sent but not acknowledged when the receiver was stopped
	var stopping time.Duration
	go func() {
		time.Sleep(time.Second)
		before, began := l.Account().Delivered, time.Now()
		stop()
		inFlight, stopping = l.Account().Accepted-before, time.Since(began)
		time.Sleep(time.Second)
		s, _ := startOTel(t, addr)
		second <- s
	}()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for i := range total {
		if err := l.Post("t", map[string]any{"n": i}); err != nil {
			t.Fatal(err)
		}
		if i%50 == 49 {
			<-tick.C
		}
	}
	after := <-second
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	rep, err := l.Close(ctx)
	if err != nil || rep.Delivered != total {
		t.Fatalf("%v: %s", err, rep.Account)
	}
	for end := time.Now().Add(time.Minute); first.LogRecordCount()+after.LogRecordCount() < total && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	seen := map[string]int{}
	for _, r := range append(records(first), records(after)...) {
		seen[r]++
	}
	duplicates := 0
	for _, n := range seen {
		duplicates += n - 1
	}
	t.Logf("%d different records, %d duplicates", len(seen), duplicates)
	if len(seen) != total {
		t.Errorf("%d records lost", total-len(seen))
	}
	// Only records that were in flight may arrive twice. On a busy machine there are more of them,
	// because stopping the receiver takes longer.
	if duplicates > int(inFlight) || int(inFlight) > total/2 && stopping < total/4*time.Second/5000 {
		t.Errorf("got %d duplicates, %d records were in flight, the receiver stopped within %v", duplicates, inFlight, stopping)
	}
}
