package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/forebay-log/forebay/bench/fluent"
	h "github.com/forebay-log/forebay/bench/harness"
)

// posting measures a client in front of a receiver. With await the clock runs
// until the receiver has decoded everything.
func posting(name string, kind h.Kind, note string, w fluent.What, await bool, delay time.Duration, mk func(addr string) (*fluent.Poster, error)) h.Contender {
	return h.Contender{Name: name, Kind: kind, Note: note, New: func(*h.Env) (*h.Subject, error) {
		r, err := fluent.NewReceiver(!await, delay)
		if err != nil {
			return nil, err
		}
		p, err := mk(r.Addr)
		if err != nil {
			r.Close()
			return nil, err
		}
		posted := uint64(0)
		s := &h.Subject{
			Run: func(_, n int) { p.Run(w, n); posted += uint64(n) },
			Drain: func() error {
				if err := p.Drain(); err != nil {
					return err
				}
				for end := time.Now().Add(20 * time.Second); await && r.Events.Load() < posted; time.Sleep(100 * time.Microsecond) {
					if time.Now().After(end) {
						return fmt.Errorf("%d of %d events arrived", r.Events.Load(), posted)
					}
				}
				return nil
			},
			Close: r.Close,
		}
		if await {
			s.Tally = func() (h.Tally, error) { return h.Tally{Records: r.Events.Load(), Bytes: r.Bytes.Load()}, nil }
		}
		return s, nil
	}}
}

func posters(w fluent.What, await, acks bool, delay time.Duration) []h.Contender {
	cs := []h.Contender{posting(ours, h.Ours, "fluent.Logger, 4 MiB", w, await, delay, func(a string) (*fluent.Poster, error) { return fluent.Ours(a, acks) })}
	if !acks {
		cs = append(cs, posting("floor", h.Reference, "written for this record alone", w, await, delay, fluent.Floor))
	}
	for _, r := range fluent.Rivals() {
		if r.Acks == acks && (r.Skip == nil || !r.Skip(w)) {
			cs = append(cs, posting(r.Name, h.Rival, r.Note, w, await, delay, r.New))
		}
	}
	return cs
}

// versusRival is Versus for a rival that the program may not be built with.
func versusRival(ref string, factor float64) func(*h.Result) []h.Check {
	for _, r := range fluent.Rivals() {
		if r.Name == ref {
			return h.Versus(ours, ref, factor)
		}
	}
	return func(*h.Result) []h.Check { return nil }
}

// stalledPost measures how long calls of Post take while the receiver stalls.
func stalledPost(name string, kind h.Kind, note string, mk func(addr string) (*fluent.Poster, error)) h.Contender {
	return h.Contender{Name: name, Kind: kind, Note: note, Sample: func(env *h.Env) (*h.Sample, error) {
		r, err := fluent.NewReceiver(false, 0)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		r.Stall(200 * time.Millisecond)
		p, err := mk(r.Addr)
		if err != nil {
			return nil, err
		}
		length := 3 * time.Second
		if env.Quick {
			length = 50 * time.Millisecond
		}
		rec := map[string]any{"line": strings.Repeat("x", 4<<10)}
		hist := newHistogram()
		next := time.Now()
		for end := next.Add(length); next.Before(end); {
			time.Sleep(time.Until(next))
			for range 20 {
				t := time.Now()
				p.Post(rec)
				hist.RecordValue(int64(time.Since(t)))
			}
			if next = next.Add(time.Millisecond); next.Before(time.Now()) {
				next = time.Now()
			}
		}
		if err := p.Drain(); err != nil {
			return nil, err
		}
		s := latencies(hist)
		for end := time.Now().Add(5 * time.Second); r.Events.Load() < uint64(hist.TotalCount()) && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		s.More["lost"] = float64(hist.TotalCount()) - float64(r.Events.Load())
		return s, nil
	}}
}

func init() {
	stalls := []h.Contender{stalledPost(ours, h.Ours, "fluent.Logger, acks, 32 MiB", fluent.OursPlanned)}
	for _, r := range fluent.Rivals() {
		stalls = append(stalls, stalledPost(r.Name, h.Rival, r.Note, r.New))
	}
	h.Register(h.Row{
		Name: "fluent/stall-200ms", What: "records of 4 KB, 20 per ms, 3 s; the receiver stops reading for 200 ms each second; duration of each call in µs",
		Target: "p99 ≤ 5 µs, max ≤ 1 ms, nothing lost", Unit: "p99 µs", MaxCount: 3, Contenders: stalls,
		Verdict: h.Verdict(h.AtMost(ours, 5), h.Figure(ours, "max", 1000), h.Figure(ours, "lost", 0)),
	})

	const tags = "; fluent-logger-golang, or IBM's client with -tags ibm"
	for _, r := range []struct {
		name, what, target string
		w                  fluent.What
		verdict            func(*h.Result) []h.Check
	}{
		{"struct", "a struct of 26 strings", "≤ 1/8 of fluent-logger-golang async, 0 allocations of ours", fluent.Struct, versusRival("official async", 1./8)},
		{"map26", "a map of 26 strings", "≤ 1/18 of fluent-logger-golang async, 0 allocations", fluent.Map26,
			h.Verdict(versusRival("official async", 1./18), h.ZeroAllocs(ours))},
		{"count", `map[string]any{"count": j}`, "≤ 1.25 × the floor", fluent.Count, h.Versus(ours, "floor", 1.25)},
	} {
		h.Register(h.Row{
			Name: "fluent/post-" + r.name, What: "Post, " + r.what + ", 1 goroutine, a receiver that discards; until all is written" + tags,
			Target: r.target, MaxOps: 100_000, Contenders: posters(r.w, false, false, 0), Verdict: r.verdict,
		})
	}
	h.Register(
		h.Row{
			Name: "fluent/end-to-end", What: "a map of 26 strings, 1 goroutine, until all is decoded" + tags, MaxOps: 100_000,
			Target:     "≥ 6 × fluent-logger-golang, ≥ 1.3 × IBM packed",
			Contenders: posters(fluent.Map26, true, false, 0),
			Verdict:    h.Verdict(versusRival("official async", 1./6), versusRival("IBM packed", 1/1.3)),
		},
		h.Row{
			Name: "fluent/acked", What: "the same, acknowledged", MaxOps: 50_000, Target: "≥ 2 × IBM packed with acks",
			Contenders: posters(fluent.Map26, true, true, 0), Verdict: h.Verdict(versusRival("official acked", 1./2), versusRival("IBM packed acked", 1./2)),
		},
		h.Row{
			Name: "fluent/acked-1ms", What: "the same over a round trip of 1 ms", MaxOps: 20_000, MaxCount: 3, Target: "≥ 4 × IBM packed with acks",
			Contenders: posters(fluent.Map26, true, true, 500*time.Microsecond),
			Verdict:    h.Verdict(versusRival("official acked", 1./4), versusRival("IBM packed acked", 1./4)),
		},
	)
}
