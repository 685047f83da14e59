package otlp

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configgrpc"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/otlp"
	"github.com/forebay-log/forebay/otlpgrpc"
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

// startReceiver starts a receiver of OTLP over gRPC or over HTTP.
func startReceiver(t *testing.T, grpc bool) (addr string, sink *consumertest.LogsSink) {
	t.Helper()
	addr = freeAddr(t)
	f := otlpreceiver.NewFactory()
	cfg := f.CreateDefaultConfig().(*otlpreceiver.Config)
	if grpc {
		cfg.Protocols.GRPC.GetOrInsertDefault().NetAddr.Endpoint = addr
		cfg.Protocols.HTTP = configoptional.None[otlpreceiver.HTTPConfig]()
	} else {
		cfg.Protocols.HTTP.GetOrInsertDefault().ServerConfig.NetAddr.Endpoint = addr
		cfg.Protocols.GRPC = configoptional.None[configgrpc.ServerConfig]()
	}
	sink = new(consumertest.LogsSink)
	r, err := f.CreateLogs(context.Background(), receivertest.NewNopSettings(f.Type()), cfg, sink)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(context.Background(), componenttest.NewNopHost()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Shutdown(context.Background()) })
	return addr, sink
}

func TestCollector(t *testing.T) {
	for _, way := range []string{"http/gzip", "http/none", "grpc/gzip", "grpc/none"} {
		t.Run(way, func(t *testing.T) {
			transport, compression, _ := strings.Cut(way, "/")
			to := map[string]func(string, ...forebay.OutputOption) forebay.OutputSpec{"http": otlp.To, "grpc": otlpgrpc.To}[transport]
			addr, sink := startReceiver(t, transport == "grpc")
			log, err := forebay.New(to("http://"+addr, otlp.Resource("service.name", "shop"),
				forebay.Configure(func(c *otlp.Config) { c.Compression, c.ScopeName = compression, "test" })))
			if err != nil {
				t.Fatal(err)
			}
			const n = 5000
			for i := range n {
				log.Info("m", slog.Int("n", i))
			}
			log.Slog().With("a", 1).WithGroup("g").Warn("odd \xff", "trace_id", "0102030405060708090a0b0c0d0e0f10", "f", 1.5, "ok", true,
				"b", []byte{1, 2}, "list", []any{1, "x", nil}, slog.Group("in", "d", time.Second), "err", fmt.Errorf("boom"))
			if err := log.Close(); err != nil {
				t.Fatal(err)
			}
			next := int64(0)
			for _, ld := range sink.AllLogs() {
				rl := ld.ResourceLogs().At(0)
				if v, _ := rl.Resource().Attributes().Get("service.name"); v.Str() != "shop" || rl.ScopeLogs().At(0).Scope().Name() != "test" {
					t.Fatalf("resource %v", rl.Resource().Attributes().AsRaw())
				}
				recs := rl.ScopeLogs().At(0).LogRecords()
				for i := range recs.Len() {
					r := recs.At(i)
					if next < n {
						if v, _ := r.Attributes().Get("n"); v.Int() != next || r.SeverityNumber() != 9 || r.Body().Str() != "m" || r.Timestamp() == 0 {
							t.Fatalf("record %d: %v", next, r.Attributes().AsRaw())
						}
						next++
						continue
					}
					next++
					got := fmt.Sprint(r.Body().Str()+r.SeverityText()+r.TraceID().String(), " ", r.Attributes().AsRaw())
					want := "odd \ufffdWARN0102030405060708090a0b0c0d0e0f10 map[a:1 g:map[b:[1 2] err:boom f:1.5 in:map[d:1000000000] list:[1 x <nil>] ok:true]]"
					if got != want {
						t.Errorf("got  %s\nwant %s", got, want)
					}
				}
			}
			if next != n+1 {
				t.Errorf("%d records arrived, not %d", next, n+1)
			}
		})
	}
}
