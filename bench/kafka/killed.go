package main

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	h "github.com/forebay-log/forebay/bench/harness"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/kafka"
)

// The row of a broker that is killed: paced producers, and after a while no connection lives
// and none is made.
const (
	producers  = 4
	tick       = time.Millisecond // each producer writes a burst per tick
	burst      = 10
	killTime   = 2 * time.Second // length of a sample
	killedFrom = killTime / 4
	killedTo   = killTime / 4 * 3
)

// A wire dials while the broker is up.
type wire struct {
	mu    sync.Mutex
	conns []net.Conn
	down  bool
}

func (w *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down {
		return nil, errors.New("connection refused")
	}
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err == nil {
		w.conns = append(w.conns, c)
	}
	return c, err
}

// set ends all connections, or lets new ones be made.
func (w *wire) set(down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = down
	for _, c := range w.conns {
		c.Close()
	}
	w.conns = nil
}

// killed measures how long calls take while a broker is killed and brought back, and what is
// lost. Without open it measures calls of nothing.
func killed(into bool) func(*h.Env) (*h.Sample, error) {
	return func(env *h.Env) (*h.Sample, error) {
		length := killTime
		if env.Quick {
			length = killTime / 40
		}
		write := func([]byte) (int, error) { return 0, nil }
		w := new(wire)
		var d *kafka.Driver
		var out *deliver.Output
		if into {
			c, err := broker()
			if err != nil {
				return nil, err
			}
			defer c.Close()
			d, err = kafka.New(kafka.Config{Brokers: c.ListenAddrs(), Topic: "logs", Compression: "lz4", Dial: w.dial})
			if err != nil {
				return nil, err
			}
			if out, err = output(d, 64<<20); err != nil {
				return nil, err
			}
			write = out.Write
		}
		var wg sync.WaitGroup
		start := time.Now()
		all := make([][]time.Duration, producers)
		rec := line()
		for i := range producers {
			wg.Go(func() {
				next := start.Add(time.Duration(i) * tick / producers)
				for end := start.Add(length); next.Before(end); {
					time.Sleep(time.Until(next))
					for range burst {
						t := time.Now()
						write(rec)
						all[i] = append(all[i], time.Since(t))
					}
					if next = next.Add(tick); next.Before(time.Now()) {
						next = time.Now()
					}
				}
			})
		}
		wg.Go(func() {
			time.Sleep(killedFrom * length / killTime)
			w.set(true)
			time.Sleep((killedTo - killedFrom) * length / killTime)
			w.set(false)
		})
		wg.Wait()
		calls := slices.Concat(all...)
		slices.Sort(calls)
		us := func(part float64) float64 { return float64(calls[int(part*float64(len(calls)-1))]) / 1e3 }
		s := &h.Sample{Value: us(.99), Ops: len(calls), More: map[string]float64{"p50": us(.5), "p99.9": us(.999), "max": us(1)}}
		if into {
			if err := out.Close(); err != nil {
				return nil, err
			}
			s.More["lost"] = float64(len(calls)) - float64(d.Stats().Records)
			s.More["sessions"] = float64(d.Stats().Sessions)
		}
		return s, nil
	}
}

func init() {
	const null = "null producer"
	h.Register(h.Row{
		Name: "kafka/killed", What: "Write of 256 bytes by 4 producers, each 10 per ms, 2 s; from 0.5 to 1.5 s the broker is gone; duration of each call in µs",
		Target: "p99 ≤ 2 µs, nothing lost", Unit: "p99 µs", Reference: null, MaxCount: 5,
		Contenders: []h.Contender{
			{Name: null, Kind: h.Reference, Note: "calls nothing", Sample: killed(false)},
			{Name: name, Kind: h.Ours, Note: "64 MiB, lz4", Sample: killed(true)},
		},
		Verdict: h.Verdict(h.AtMost(name, 2), h.Figure(name, "lost", 0)),
	})
}
