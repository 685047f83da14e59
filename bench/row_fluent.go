package main

import (
	"math"
	"time"

	"github.com/forebay-log/forebay/bench/fluent"
	"github.com/forebay-log/forebay/bench/fluent/official"
	h "github.com/forebay-log/forebay/bench/harness"
)

// posters returns the contenders of a row about the Forward protocol.
func posters(s fluent.Setup) []h.Contender {
	if s.Stall {
		cs := []h.Contender{
			s.Contender("null producer", h.Reference, "calls nothing", fluent.Null),
			s.Contender("copy", h.Reference, "copies the 4 KB, sends nothing", fluent.Copy),
			s.Contender("copy and send", h.Reference, "copies them under a lock into 256 KiB that another goroutine writes, no acks", fluent.CopyAndSend),
			s.Contender(ours, h.Ours, "fluent.Logger, acks, slabs "+fluent.StallPlan.String(), fluent.OursPlanned),
		}
		for _, r := range official.Rivals() {
			cs = append(cs, s.Contender(r.Name, h.Rival, r.Note, r.New))
		}
		for _, r := range fluent.IBM(s.Workers) {
			cs = append(cs, fluent.Elsewhere(r, s))
		}
		return cs
	}
	cs := []h.Contender{s.Contender(ours, h.Ours, "fluent.Logger, 4 MiB", fluent.Ours(s.Acks, false))}
	if !s.Acks {
		cs = append(cs, s.Contender("floor", h.Reference, "written for this record alone", fluent.Floor))
	}
	if !s.Await {
		cs = append(cs, s.Contender("forebay sync", h.Reference, "fluent.Logger, Sync: until it is written", fluent.Ours(false, true)))
	}
	for _, r := range official.Rivals() {
		if r.Acks == s.Acks {
			cs = append(cs, s.Contender(r.Name, h.Rival, r.Note, r.New))
		}
	}
	for _, r := range fluent.IBM(s.Workers) {
		if r.Acks == s.Acks && !(r.NoStruct && s.What == fluent.Struct) {
			cs = append(cs, fluent.Elsewhere(r, s))
		}
	}
	return cs
}

func init() {
	row := func(name, what, target string, s fluent.Setup, maxCount int, verdict func(*h.Result) []h.Check) {
		r := h.Row{
			Name: "fluent/" + name, What: what, Target: target, Goroutines: s.Workers, MaxOps: s.MaxOps, MaxCount: maxCount,
			Contenders: posters(s), Verdict: verdict,
		}
		if s.Stall {
			r.Unit, r.Reference = "p99 µs", "null producer"
		}
		h.Register(r)
	}
	const async, packed, acked, packedAcked = "official async", "IBM packed", "official acked", "IBM packed acked"
	const discard = ", 1 goroutine, a receiver that discards; until all is written"

	row("post-struct", "Post, a struct of 26 strings"+discard, "≤ 1.2 × the floor, ≤ 1/8 of fluent-logger-golang async, 0 allocations of ours",
		fluent.Setup{What: fluent.Struct, MaxOps: 100_000}, 0,
		h.Verdict(h.Versus(ours, "floor", 1.2), h.Versus(ours, async, 1./8), sameAllocs))
	row("post-map26", "Post, a map of 26 strings"+discard, "≤ 0.8 × the floor, ≤ 1/18 of fluent-logger-golang async, 0 allocations",
		fluent.Setup{What: fluent.Map26, MaxOps: 100_000}, 0,
		h.Verdict(h.Versus(ours, "floor", 0.8), h.Versus(ours, async, 1./18), h.ZeroAllocs(ours)))
	row("post-count", `Post, map[string]any{"count": j}`+discard, "≤ 1.2 × the floor, at most the caller's own allocations",
		fluent.Setup{What: fluent.Count, MaxOps: 100_000}, 0, h.Verdict(h.Versus(ours, "floor", 1.2), sameAllocs))

	const decoded = "a map of 26 strings, until all is decoded"
	for _, p := range []struct {
		workers    int
		tail, note string
	}{{1, "", ", 1 goroutine"}, {4, "-4", ", 4 goroutines, one connection (\"own\": four)"}} {
		row("end-to-end"+p.tail, decoded+p.note, "≥ 6 × fluent-logger-golang, ≥ 1.3 × IBM packed",
			fluent.Setup{What: fluent.Map26, Workers: p.workers, Await: true, MaxOps: 100_000}, 0,
			h.Verdict(h.Versus(ours, async, 1./6), h.Versus(ours, packed, 1/1.3)))
		row("acked"+p.tail, decoded+" and acknowledged"+p.note, "≥ 2 × IBM packed with acks",
			fluent.Setup{What: fluent.Map26, Workers: p.workers, Await: true, Acks: true, MaxOps: 50_000}, 0,
			h.Verdict(h.Versus(ours, acked, 1./2), h.Versus(ours, packedAcked, 1./2)))
	}
	row("acked-1ms", decoded+" and acknowledged, over a round trip of 1 ms, 1 goroutine", "≥ 4 × IBM packed with acks",
		fluent.Setup{What: fluent.Map26, Await: true, Acks: true, Delay: 500 * time.Microsecond, MaxOps: 20_000}, 3,
		h.Verdict(h.Versus(ours, acked, 1./4), h.Versus(ours, packedAcked, 1./4)))
	row("stall-200ms", "records of 4 KB, 20 per ms, 3 s; the receiver stops reading for 200 ms each second; duration of each call in µs",
		"p99 ≤ 5 µs, max ≤ 1 ms, heap ≤ 1.1 × the planned slabs, nothing lost", fluent.Setup{Stall: true}, 3,
		h.Verdict(h.AtMost(ours, 5), h.Figure(ours, "max", 1000), h.Figure(ours, "lost", 0),
			h.Figure(ours, "slabs-MiB", plannedMiB), h.Figure(ours, "MiB", math.Round(stallMemory*plannedMiB))))
}

// plannedMiB is the memory of the planned slabs of the stall row, and stallMemory
// what the heap may grow to beside it, with everything else a client needs and the
// receiver's answers.
var plannedMiB = float64(fluent.StallPlan.SlabBytes*fluent.StallPlan.SlabCount) / (1 << 20)

const stallMemory = 1.1

// sameAllocs requires that ours allocates no more than the floor: what it does is
// the caller's.
func sameAllocs(r *h.Result) []h.Check {
	a, floor := r.Column(ours), r.Column("floor")
	if a == nil || floor == nil {
		return nil
	}
	c := h.Check{Text: "allocations beyond those of the floor", Got: a.Allocs - floor.Allocs, Limit: 0.01, Status: h.OK}
	if c.Got > c.Limit {
		c.Status = h.Short
	}
	return []h.Check{c}
}
