package jetstream

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

// While a server hangs and sessions end one after another, the heap does not grow, because each
// session frees its memory.
func TestMemoryIsBoundedDuringAnOutage(t *testing.T) {
	n := start(t, nil)
	// The stream keeps few messages, because the server uses the same heap.
	stream(t, admin(t, n), func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Duplicates = 100, 100*time.Millisecond })
	p := newProxy(t, n)
	d, err := New(Config{Servers: p.url(), AckTimeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	o := fastOptions(new(events))
	o.BufferBytes, o.Slab.WhenFull, o.OnError, o.CloseTimeout = 1<<20, slab.DropOldest(), nil, time.Millisecond
	out, err := deliver.NewOutput(d, &o)
	if err != nil {
		t.Fatal(err)
	}
	rounds := testkit.Rounds(t, 12, 300)
	var heaps []uint64 // heap at the beginning of each session
	i := 0
	for s := uint64(0); len(heaps) < rounds; i += 500 {
		write(t, out, i, i+500)
		time.Sleep(time.Millisecond)
		if n := d.Stats().Connects; n > s {
			s = n
			p.set(true, true) // the server hangs after the session has begun
			heaps = append(heaps, inUse())
		} else if !d.Stats().Connected {
			p.set(false, false) // lets the next session begin
			p.cut()
		}
	}
	// The number of messages in flight varies, so the largest of the first values is compared with the
	// smallest of the last ones.
	first, last := slices.Max(heaps[:4]), slices.Min(heaps[rounds-4:])
	t.Logf("%d sessions, %d KiB in the first four, %d KiB in the last four", rounds, first>>10, last>>10)
	if last > first+4<<20 { // part of the heap belongs to the server
		t.Errorf("the heap has grown from %d to %d bytes", first, last)
	}
	if a := out.Stats().Account; a.Accepted != a.Delivered+a.Pending.Total()+a.Dropped.Total() {
		t.Errorf("%v", a)
	}
	_ = out.Close()
}

// inUse returns the number of reachable bytes of the heap.
func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
