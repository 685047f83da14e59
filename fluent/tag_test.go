package fluent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/msgpack"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
	"github.com/forebay-log/forebay/internal/testkit/race"
)

// withTags calls the function f with an empty tag table and then restores the table.
func withTags(t *testing.T, f func()) {
	t.Helper()
	old := tags.all
	names, known, full := tags.names.Load(), tags.known.Load(), tags.full.Load()
	text, misses, found := tags.text, tags.misses, tags.found
	tags.all, tags.text, tags.misses, tags.found = nil, 0, 0, nil
	tags.names.Store(nil)
	tags.known.Store(nil)
	tags.full.Store(false)
	defer func() {
		tags.all, tags.text, tags.misses, tags.found = old, text, misses, found
		tags.names.Store(names)
		tags.known.Store(known)
		tags.full.Store(full)
	}()
	f()
}

// Post accepts more tags than the tag table can store, in less than 32 MiB of memory.
// FOREBAY_TORTURE multiplies the number of tags, up to a million.
func TestMillionTagsUseBoundedMemory(t *testing.T) {
	n := testkit.Scale(70_000, 1_000_000) // more than the table can store
	withTags(t, func() {
		dial := func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go io.Copy(io.Discard, server)
			return client, nil
		}
		l := newTestLogger(t, testConfig{Config: Config{Dial: dial, NoAck: true}, WhenFull: "block"})
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range n {
			if err := l.Post(fmt.Sprintf("tenant.%07d.requests", i), map[string]any{"n": i}); err != nil {
				t.Fatal(err)
			}
		}
		l.Flush(t.Context())
		runtime.GC()
		runtime.ReadMemStats(&after)
		if d := int64(after.HeapAlloc) - int64(before.HeapAlloc); d > 32<<20 {
			t.Errorf("%d MiB", d>>20)
		} else {
			t.Logf("%d KiB", d>>10)
		}
		if rep := closeLogger(t, l); rep.Delivered != uint64(n) {
			t.Errorf("%s", rep.Account)
		}
	})
}

// If the tag table is full, records contain their tags and are still delivered. This holds for a
// Logger and a Router, in every mode, and for delivery through a spool, a crash-safe file or a
// fallback. Records that are converted to JSON also keep their tags.
func TestTagsBeyondTheTableReachEveryDestination(t *testing.T) {
	withTags(t, func() {
		for i := range maxTags {
			streamOf(fmt.Sprintf("filler.%d", i))
		}
		if id := streamOf("one more"); id != ownTag {
			t.Fatalf("stream %d", id)
		}
		if id := streamOf("filler.7"); id == ownTag {
			t.Error("a tag of the table is not found")
		}
		post := func(l *Logger) {
			for i := range 60 {
				if err := l.Post([]string{"far.x", "filler.9", "far.y"}[i%3], map[string]any{"n": i}); err != nil {
					t.Fatal(err)
				}
			}
			log := slog.New(mustHandler(t, l.Output))
			for i := 60; i < 80; i++ {
				log.Info("m", "tag", "far.x", "n", i)
			}
		}
		check := func(t *testing.T, r *received) {
			t.Helper()
			for k, tag := range []string{"far.x", "filler.9", "far.y"} {
				want := slices.DeleteFunc(seq(0, 60), func(n int) bool { return n%3 != k })
				got := r.get(tag)
				if k == 0 {
					// In a record of the Router, n is not the first field, so recordNumber returns
					// 0.
					want = append(want, make([]int, 20)...)
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s: %v", tag, got)
				}
			}
			r.check(t)
		}
		for _, mode := range []string{"", modeForward, modeMessage} {
			var r received
			f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { r.ackAll(c) }}
			l := newTestLogger(t, testConfig{Config: Config{Servers: []string{listen(t, f)}, Mode: mode}})
			post(l)
			closeLogger(t, l)
			check(t, &r)
		}

		// No server listens at this address. The port of a closed listener could be reused for a
		// later listener.
		const gone = "127.0.0.1:1"
		for _, crash := range []bool{false, true} {
			c := testConfig{Config: Config{Servers: []string{gone}}, CloseTimeout: time.Second}
			if dir := t.TempDir(); crash {
				c.CrashDir = dir
			} else {
				c.SpoolDir = dir
			}
			l := newTestLogger(t, c)
			post(l)
			if _, err := l.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			var r received
			f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { r.ackAll(c) }}
			c.Servers = []string{listen(t, f)}
			l = newTestLogger(t, c)
			if err := l.Flush(t.Context()); err != nil {
				t.Error(err)
			}
			closeLogger(t, l)
			check(t, &r)
		}

		var r received
		f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { r.ackAll(c) }}
		other := newTestLogger(t, testConfig{Config: Config{Servers: []string{listen(t, f)}}})
		l := newTestLogger(t, testConfig{Config: Config{Servers: []string{gone}}, ErrorHandler: FallbackTo(other)})
		post(l)
		closeLogger(t, l)
		closeLogger(t, other)
		check(t, &r)

		var lines bytes.Buffer
		l = newTestLogger(t, testConfig{Config: Config{Servers: []string{gone}}, ErrorHandler: deliver.JSONLines(&lines)})
		post(l)
		closeLogger(t, l)
		if text := lines.String(); strings.Count(text, `"tag":"far.x"`) != 40 || strings.Count(text, `"tag":"far.y"`) != 20 || strings.Contains(text, "raw") {
			t.Errorf("%.400s", text)
		}

		// A tag from the file of an earlier process gets a stream even if the table is full.
		d := dictionary{}
		if id := d.Stream([]byte("from.disk")); id == ownTag || id < firstTag || d.Stream([]byte("from.disk")) != id {
			t.Errorf("stream %d", id)
		}
		if def, ok := d.AppendStream(nil, ownTag); !ok || d.Stream(def) != ownTag {
			t.Errorf("%q", def)
		}
		var long string = strings.Repeat("x", maxTagBytes+1)
		err := l.Post(long, nil)
		if !errors.Is(err, ErrTag) && !errors.Is(err, batch.ErrClosed) {
			t.Errorf("%v", err)
		}
	})
}

// mustHandler returns a handler that writes to s. The attribute "tag" is the tag of a record.
func mustHandler(t *testing.T, s *deliver.Output) slog.Handler {
	t.Helper()
	enc, err := NewEncoder(&EncoderOptions{TagKey: "tag"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := forebay.NewRouter(forebay.Route(enc, forebay.Writer(s)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Posting a record that contains its tag does not allocate. When a batch is divided, each tag is
// allocated only once.
func TestTagsBeyondTheTableAllocateNothing(t *testing.T) {
	race.Skip(t)
	pools.Plain(t)
	withTags(t, func() {
		for i := range maxTags {
			streamOf(fmt.Sprintf("filler.%d", i))
		}
		f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { new(received).ackAll(c) }}
		l := newTestLogger(t, testConfig{Config: Config{Servers: []string{listen(t, f)}}, FlushInterval: time.Hour})
		m := map[string]any{"n": 1}
		if n := allocs.PerRun(50, func() { l.Post("one.more.tag.for.which.there.is.no.room", m) }); n != 0 {
			t.Errorf("%v allocations in Post", n)
		}
		closeLogger(t, l)

		c := mustResolve(t)
		var lay layout
		rec := batch.Record{Meta: batch.Meta{Stream: ownTag}, Data: append(msgpack.AppendStr(nil, "one.more.tag.for.which.there.is.no.room"), mustEntry(t, 1)...)}
		lay.byTag = map[string]int{}
		lay.groupOf(&rec, c)
		entry := mustEntry(t, 1)
		if n := allocs.PerRun(50, func() {
			if g, e := lay.groupOf(&rec, c); g != 0 || len(e) != len(entry) {
				t.Fatal(g)
			}
		}); n != 0 {
			t.Errorf("%v allocations in groupOf", n)
		}
	})
}
