package forward

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/forebay-log/forebay/cmd/internal/listen"
	"github.com/forebay-log/forebay/cmd/internal/listen/ndjson"
)

// BenchmarkAcked measures acknowledged events over the loopback interface. A client sends messages
// of 64 KiB, up to four at a time. The server writes the records as JSON lines to the null device.
// One operation is an event of 256 bytes.
func BenchmarkAcked(b *testing.B) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer null.Close()
	s := New(Config{Config: listen.Config{Sink: ndjson.New(null, nil)}})
	defer s.Close(b.Context())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s.Serve(l)
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	one := entry(1, fmt.Sprintf(`{"level":"info","msg":%q,"status":200,"took":1.5,"path":"/a/b"}`, strings.Repeat("x", 190)))
	const events = 256
	chunk := packed(bytes.Repeat(one, events), "chunk", "c")
	ack := len(appendAck(nil, []byte("c")))
	b.SetBytes(int64(len(one)))
	b.ResetTimer()
	chunks := (b.N + events - 1) / events
	window := make(chan struct{}, 4)
	done := make(chan error, 1)
	go func() {
		for range chunks {
			if _, err := io.ReadFull(c, make([]byte, ack)); err != nil {
				done <- err
				return
			}
			<-window
		}
		done <- nil
	}()
	for range chunks {
		window <- struct{}{}
		if _, err := c.Write(chunk); err != nil {
			b.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(chunks*events)/b.Elapsed().Seconds(), "events/s")
}
