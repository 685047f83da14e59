package main

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/listen"
	"github.com/forebay-log/forebay/cmd/internal/listen/forward"
	"github.com/forebay-log/forebay/cmd/internal/listen/listentest"
	"github.com/forebay-log/forebay/internal/compression"
	"github.com/forebay-log/forebay/internal/msgpack"
)

// The Forward listener accepts messages that are compressed with zstd. A corrupt message, a
// decompression bomb or a window above 8 MiB ends only the connection on which it was received.
func TestForwardListenerLimitsZstd(t *testing.T) {
	format, err := compression.Find("zstd")
	if err != nil {
		t.Fatal(err)
	}
	compressed := func(b []byte) []byte {
		var out bytes.Buffer
		w := format.NewWriter(compression.Fast)
		w.Reset(&out)
		if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	entry := append([]byte{0x92, 1, 0x81, 0xa1, 'a'}, 1) // [1, {"a": 1}]
	// A frame of RFC 8878, section 3.1.1, consists of a magic number, a descriptor without flags, a
	// window of 16 MiB, and an uncompressed last block.
	wide := append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0, 14 << 3, byte(1 | len(entry)<<3), 0, 0}, entry...)
	narrow := bytes.Clone(wide)
	narrow[5] = 13 << 3 // a window of 8 MiB
	for name, tt := range map[string]struct {
		payload []byte
		refusal string // "" if accepted
	}{
		"valid":            {compressed(entry), ""},
		"a window of 8":    {narrow, ""},
		"corrupt":          {[]byte("nothing"), "it is not zstd"},
		"cut":              {compressed(entry)[:8], "it is not zstd"},
		"a bomb":           {compressed(make([]byte, 2<<20)), "longer than 1 MiB when decompressed"},
		"a window of 16 M": {wide, "it is not zstd"},
	} {
		t.Run(name, func(t *testing.T) {
			sink, refused, pipes := new(listentest.Sink), new(listentest.Refusals), listentest.NewPipes()
			s := forward.New(forward.Config{Config: listen.Config{Sink: sink, Refused: refused.Add, Limits: listen.Limits{MessageBytes: 1 << 20}}})
			s.Serve(pipes)
			defer s.Close(context.Background())
			c := pipes.Dial()
			defer c.Close()
			c.SetDeadline(time.Now().Add(time.Minute))
			msg := msgpack.AppendStr([]byte{0x93}, "t")
			msg = msgpack.AppendBin(msg, tt.payload)
			msg = append(msg, 0x82)
			for _, s := range []string{"compressed", "zstd", "chunk", "c"} {
				msg = msgpack.AppendStr(msg, s)
			}
			go c.Write(msg)
			ack := make([]byte, len("\x81\xa3ack\xa1c"))
			_, err := io.ReadFull(c, ack)
			if tt.refusal == "" {
				if err != nil || string(ack) != "\x81\xa3ack\xa1c" || !slices.Equal(sink.Bodies(), []string{`{"a":1}`}) {
					t.Errorf("answer %q, %v; accepted %q, refused %q", ack, err, sink.Bodies(), refused.All())
				}
				return
			}
			if err != io.EOF && err != io.ErrClosedPipe {
				t.Errorf("answer %q, %v", ack, err)
			}
			for deadline := time.Now().Add(time.Minute); len(refused.All()) == 0 && time.Now().Before(deadline); {
				time.Sleep(time.Millisecond)
			}
			if got := refused.All(); len(got) != 1 || !strings.Contains(got[0], tt.refusal) || len(sink.Bodies()) > 0 {
				t.Errorf("refused %q, want %q; accepted %q", got, tt.refusal, sink.Bodies())
			}
		})
	}
}
