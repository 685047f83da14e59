package fluent

import (
	"fmt"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	h "github.com/forebay-log/forebay/bench/harness"
)

// A Setup is what a row does with its contenders.
type Setup struct {
	What    What
	Workers int           // goroutines that post
	Await   bool          // the clock runs until the receiver has decoded everything; else it discards
	Acks    bool          // acknowledged
	Delay   time.Duration // of an acknowledgement, each way
	Stall   bool          // how long calls take while the receiver stalls, see stalled
	MaxOps  int
}

// Contender returns what measures a client in front of a receiver.
func (s Setup) Contender(name string, kind h.Kind, note string, mk func(addr string, workers int) (*Poster, error)) h.Contender {
	c := h.Contender{Name: name, Kind: kind, Note: note}
	if s.Stall {
		c.Sample = func(env *h.Env) (*h.Sample, error) { return stalled(env, mk) }
		return c
	}
	c.New = func(*h.Env) (*h.Subject, error) {
		r, err := NewReceiver(!s.Await, s.Delay)
		if err != nil {
			return nil, err
		}
		p, err := mk(r.Addr, max(1, s.Workers))
		if err != nil {
			r.Close()
			return nil, err
		}
		return s.subject(r, p), nil
	}
	return c
}

func (s Setup) subject(r *Receiver, p *Poster) *h.Subject {
	posted := make([]struct {
		n uint64
		_ [56]byte
	}, max(1, s.Workers))
	for end := time.Now().Add(20 * time.Second); s.Await && r.Events.Load() < p.First && time.Now().Before(end); {
		time.Sleep(100 * time.Microsecond)
	}
	events, bytes := r.Events.Load(), r.Bytes.Load()
	sub := &h.Subject{
		Run: func(worker, n int) { p.Run(worker, s.What, n); posted[worker].n += uint64(n) },
		Drain: func() error {
			if err := p.Drain(); err != nil {
				return err
			}
			want := uint64(0)
			for i := range posted {
				want += posted[i].n
			}
			for end := time.Now().Add(20 * time.Second); s.Await && r.Events.Load()-events < want; time.Sleep(100 * time.Microsecond) {
				if time.Now().After(end) {
					return fmt.Errorf("%d of %d events arrived", r.Events.Load()-events, want)
				}
			}
			return nil
		},
		Close: r.Close,
	}
	if s.Await {
		sub.Tally = func() (h.Tally, error) {
			return h.Tally{Records: r.Events.Load() - events, Bytes: r.Bytes.Load() - bytes}, nil
		}
	}
	return sub
}

// The load of stalled.
const (
	stallRecord = 4 << 10
	stallRate   = 20_000 // per second, in bursts of stallBurst
	stallBurst  = 20
	stallFor    = 200 * time.Millisecond
)

// stallLine is the one field of a record of stalled.
const stallLine = "line"

// stalled measures how long calls of Post take while the receiver stalls, and how
// much memory that takes: records of 4 KB, 20 per millisecond.
func stalled(env *h.Env, mk func(addr string, workers int) (*Poster, error)) (*h.Sample, error) {
	r, err := NewReceiver(false, 0)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	r.Stall(stallFor)
	length := 3 * time.Second
	if env.Quick {
		length = 50 * time.Millisecond
	}
	rec := map[string]any{stallLine: strings.Repeat("x", stallRecord)}
	hist := hdrhistogram.New(1, int64(10*time.Second), 3)
	heap := watchHeap()
	defer heap.end()
	p, err := mk(r.Addr, 1)
	if err != nil {
		return nil, err
	}
	next := time.Now()
	for end := next.Add(length); next.Before(end); {
		time.Sleep(time.Until(next))
		for range stallBurst {
			t := time.Now()
			p.Post(0, rec)
			hist.RecordValue(int64(time.Since(t)))
		}
		if next = next.Add(time.Second * stallBurst / stallRate); next.Before(time.Now()) {
			next = time.Now()
		}
	}
	peak := heap.end()
	more := map[string]float64{"MiB": float64(peak) / (1 << 20)}
	if p.Held != nil {
		more["slabs-MiB"] = float64(p.Held()) / (1 << 20)
	}
	if err := p.Drain(); err != nil {
		return nil, err
	}
	for end := time.Now().Add(5 * time.Second); !p.Local && r.Events.Load() < uint64(hist.TotalCount()) && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	us := func(q float64) float64 { return float64(hist.ValueAtQuantile(q)) / 1e3 }
	more["p50"], more["p99.9"], more["max"] = us(50), us(99.9), float64(hist.Max())/1e3
	if !p.Local {
		more["lost"] = float64(hist.TotalCount()) - float64(r.Events.Load())
	}
	return &h.Sample{Value: us(99), Ops: int(hist.TotalCount()), More: more}, nil
}

// A heapWatch looks every few milliseconds how many bytes of objects are on the
// heap, garbage that was not collected yet included.
type heapWatch struct {
	quit chan struct{}
	done chan struct{}
	once sync.Once
	base uint64
	peak uint64 // when done
}

func watchHeap() *heapWatch {
	runtime.GC()
	runtime.GC() // what pools have dropped, too
	w := &heapWatch{quit: make(chan struct{}), done: make(chan struct{}), base: heapBytes()}
	go func() {
		defer close(w.done)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			w.peak = max(w.peak, heapBytes())
			select {
			case <-w.quit:
				w.peak = max(w.peak, heapBytes())
				return
			case <-tick.C:
			}
		}
	}()
	return w
}

// end ends it and returns by how much the heap has grown at most.
func (w *heapWatch) end() uint64 {
	w.once.Do(func() { close(w.quit) })
	<-w.done
	return w.peak - min(w.peak, w.base)
}

func heapBytes() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
