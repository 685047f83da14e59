package defects_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/diskqueue"
	"github.com/forebay-log/forebay/internal/testkit"
)

// otherWire writes 100 lines to a spool with one encoding of requests, and opens the spool with the
// other encoding.
func otherWire(tb testing.TB) {
	for _, w := range [][2]string{{"protobuf", "json"}, {"json", "protobuf"}} {
		dir := tb.TempDir()
		s, log := lokiSink(tb, lokiDown, func(c *lokiOutput) { c.SpoolDir, c.Wire = dir, w[0] })
		write(log, 1, 100)
		inSpool(tb, s, 100)
		closeSoon(s.Shutdown)
		b := new(received)
		s, _ = lokiSink(tb, storing(b), func(c *lokiOutput) { c.SpoolDir, c.Wire = dir, w[1] })
		a := settled(s, time.Minute)
		got := b.firstCopies()
		slices.Sort(got)
		if len(got) != 100 || got[0] != 1 || got[99] != 100 || a.Recovered != 100 || a.Delivered != 100 {
			tb.Errorf("100 lines of a spool in %s, read with %s: %d arrived: %s", w[0], w[1], len(got), a)
		}
		closeSoon(s.Shutdown)
	}
}

// A foreignCodec is the codec of a content type that no driver accepts.
type foreignCodec struct{}

func (foreignCodec) ContentType() string { return "application/x-from-elsewhere" }

func (foreignCodec) AppendJSON(dst, rec []byte, _ batch.Meta) []byte {
	return fmt.Appendf(dst, "%q", rec)
}

func (foreignCodec) AppendMarker(dst []byte, _ batch.Drops, _ time.Time) []byte { return dst }

// unknownForm opens spools with ten records of a content type that no driver accepts.
func unknownForm(tb testing.TB) {
	for name, open := range map[string]func(dir string) accounter{
		"forward": func(dir string) accounter {
			f := forward(tb, func(_ int, c *testkit.ForwardConn) { new(received).acceptAll(c) })
			return logger(tb, f.Dial, func(c *forwardOutput) { c.SpoolDir = dir })
		},
		"loki": func(dir string) accounter {
			s, _ := lokiSink(tb, storing(new(received)), func(c *lokiOutput) { c.SpoolDir = dir })
			return s
		},
	} {
		dir := tb.TempDir()
		sp, err := diskqueue.Open(dir, nil)
		if err != nil {
			tb.Fatalf("cannot run the test: %v", err)
		}
		b := batch.Batch{Codec: foreignCodec{}}
		for n := range 10 {
			b.Append(fmt.Appendf(nil, "record %d", n), 0, batch.Meta{Time: time.Now().UnixNano()})
		}
		if _, err = sp.Append(&b); err != nil {
			tb.Fatalf("cannot run the test: %v", err)
		}
		if err = sp.Close(); err != nil {
			tb.Fatalf("cannot run the test: %v", err)
		}
		to := open(dir)
		time.Sleep(10 * time.Minute)
		a := to.Account()
		onDisk, err := diskqueue.List(dir, false)
		if err != nil {
			tb.Fatalf("cannot run the test: %v", err)
		}
		if a.Recovered != 10 || a.Pending.Spill != 10 || a.Dropped.Total() != 0 || onDisk.Pending != 10 {
			tb.Errorf("%s: 10 records of an unknown form: %d are left on disk: %s", name, onDisk.Pending, a)
		}
	}
}
