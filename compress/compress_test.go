package compress

import (
	"bytes"
	stdgzip "compress/gzip"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"

	"github.com/forebay-log/forebay/file"
	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/internal/compression"
	"github.com/forebay-log/forebay/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// After the package is imported, Forward requests and rotated files can be compressed with zstd.
func TestForwardWithZstd(t *testing.T) {
	got := make(chan *testkit.ForwardMessage, 1)
	server := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
		if m, err := c.Next(); err == nil {
			got <- m
			c.Ack(m.Chunk)
		}
		c.Next()
	}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server.Serve(l)
	defer server.Close()
	log, err := fluent.NewLogger(fluent.Config{Servers: []string{l.Addr().String()}, Compress: "zstd"})
	if err != nil {
		t.Fatal(err)
	}
	log.Post("app", map[string]any{"msg": strings.Repeat("long ", 100)})
	if rep, err := log.Close(t.Context()); err != nil || rep.Delivered != 1 {
		t.Fatalf("%v, %v", rep, err)
	}
	if m := <-got; m.Compressed != "zstd" || len(m.Entries) != 1 || !bytes.Contains(m.Entries[0], []byte("long long")) {
		t.Errorf("%+v", m)
	}
}

func TestRotatedFileWithZstd(t *testing.T) {
	dir := t.TempDir()
	f, err := file.Open(filepath.Join(dir, "x.log"), &file.Options{RotateBytes: 8, Compress: "zstd"})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"line 1\n", "line 2\n"} {
		if _, err := f.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "x-*-size.log.zst"))
	if err != nil || len(names) != 1 {
		t.Fatalf("%q, %v", names, err)
	}
	b, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	if text, err := z.DecodeAll(b, nil); err != nil || string(text) != "line 1\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// Each format decompresses its own output, repeatedly with the same writer and reader. It rejects
// other data.
func TestFormatsReadTheirOwnOutput(t *testing.T) {
	for _, name := range []string{"gzip", "zstd"} {
		format, err := compression.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, level := range []compression.Level{compression.Fast, compression.Small} {
			w, r := format.NewWriter(level), format.NewReader()
			for n := range 3 {
				text := strings.Repeat(fmt.Sprint("text ", n), 1<<(8*n))
				var zipped bytes.Buffer
				w.Reset(&zipped)
				io.WriteString(w, text)
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
				if err := r.Reset(&zipped); err != nil {
					t.Fatal(err)
				}
				if got, err := io.ReadAll(r); err != nil || string(got) != text {
					t.Errorf("%s: %d bytes of %d, %v", name, len(got), len(text), err)
				}
			}
			err := r.Reset(strings.NewReader("neither of the two formats"))
			if err == nil {
				_, err = io.ReadAll(r)
			}
			if err == nil {
				t.Errorf("%s: no error for other data", name)
			}
		}
	}
}

// BenchmarkRequest compresses 64 KiB of log lines, the payload of a Forward request.
func BenchmarkRequest(b *testing.B) {
	lines, err := os.ReadFile("../testdata/logs/OpenSSH.log")
	if err != nil {
		b.Fatal(err)
	}
	lines = lines[:64<<10]
	std := func(compression.Level) compression.Writer {
		w, _ := stdgzip.NewWriterLevel(nil, stdgzip.BestSpeed)
		return w
	}
	for _, f := range []struct {
		name string
		make func(compression.Level) compression.Writer
	}{{"compress/gzip", std}, {"klauspost/gzip", newGzip}, {"klauspost/zstd", newZstd}} {
		b.Run(f.name, func(b *testing.B) {
			w := f.make(compression.Fast)
			var out bytes.Buffer
			b.SetBytes(int64(len(lines)))
			for b.Loop() {
				out.Reset()
				w.Reset(&out)
				w.Write(lines)
				w.Close()
			}
			b.ReportMetric(float64(len(lines))/float64(out.Len()), "ratio")
		})
	}
}
