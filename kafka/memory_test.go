package kafka

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

// While a broker hangs and sessions end one after another, the heap stays bounded, because each
// session frees its memory.
func TestMemoryIsBoundedDuringAnOutage(t *testing.T) {
	c := newCluster(t, kfake.NumBrokers(1))
	conf := fastConfig(c, "logs")
	conf.Timeout, conf.RequestTimeout, conf.BatchBytes, conf.Compression = 20*time.Millisecond, 20*time.Millisecond, 64<<10, "lz4"
	o := begin(t, conf, func(r *deliver.OutputOptions) {
		r.BufferBytes, r.Slab.WhenFull = 1<<20, slab.DropOldest()
		r.OnError, r.CloseTimeout = nil, time.Millisecond
	})
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return nil, nil, true
	})
	rounds := testkit.Rounds(t, 12, 600)
	var heaps []uint64 // heap at the beginning of each session
	for s := uint64(0); len(heaps) < rounds; {
		o.write(t, lines(3, 500)...)
		if n := o.stats().Sessions; n > s {
			s = n
			heaps = append(heaps, inUse())
		}
	}
	// The number of records in flight varies, so the largest of the first values is compared with the
	// smallest of the last ones.
	first, last := slices.Max(heaps[:4]), slices.Min(heaps[rounds-4:])
	t.Logf("%d sessions, %d KiB in the first four, %d KiB in the last four", rounds, first>>10, last>>10)
	if last > first+2<<20 {
		t.Errorf("the heap has grown from %d to %d bytes", first, last)
	}
	if a := o.Stats().Account; a.Delivered > 0 || a.Accepted != a.Pending.Total()+a.Dropped.Total() {
		t.Errorf("%v", a)
	}
	o.Close()
}

// inUse returns the number of bytes of the heap that are reachable.
func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
