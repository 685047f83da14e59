package httpsink

import (
	"strings"
	"testing"

	"github.com/forebay-log/forebay/internal/testkit/allocs"
)

// BenchmarkRequest builds a request of 1,000 records of 256 bytes, without compression.
func BenchmarkRequest(b *testing.B) {
	recs := make([]string, 1000)
	for i := range recs {
		recs[i] = `{"time":"2026-01-02T03:04:05Z","level":"INFO","msg":"` + strings.Repeat("x", 200) + "\"}\n"
	}
	in := batchOf(recs...)
	for i := range apis {
		b.Run(apis[i].name, func(b *testing.B) {
			fr := newFramer(&Config{api: &apis[i]})
			out := fr.append(nil, in)
			b.SetBytes(int64(len(out)))
			b.ReportAllocs()
			for b.Loop() {
				out = fr.append(out[:0], in)
			}
		})
	}
}

// For each API, building a request does not allocate.
func TestRequestsDoNotAllocate(t *testing.T) {
	in := batchOf("{\"a\":1,\"msg\":\"x\"}\n", "{\"b\":2}\n", "{}\n")
	for i := range apis {
		fr := newFramer(&Config{api: &apis[i]})
		out := make([]byte, 0, 4<<10)
		if n := allocs.PerRun(100, func() { out = fr.append(out[:0], in) }); n > 0 {
			t.Errorf("%s: %v allocations", apis[i].name, n)
		}
	}
}
