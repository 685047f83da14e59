package main

import (
	"fmt"
	"time"

	"github.com/forebay-log/forebay/bench/fluent"
	h "github.com/forebay-log/forebay/bench/harness"
)

func init() {
	const (
		floor = "floor"
		ibm   = "IBM packed"

		ibmNote = "IBM/fluent-forward-go 0.4.0, SendPacked, the caller gathers 100"
	)
	const discard = ", 1 goroutine, a receiver that discards; until all is written"
	for _, r := range []struct {
		name, what string
		post       fluent.What
		rival      bool // the competitor's client rejects structs
		targets    []h.Target
	}{
		{"fluent/post-struct", "Post, a struct of 26 strings" + discard, fluent.Struct, false,
			[]h.Target{h.Versus(ours, floor, 1.2), h.Above(ours, floor, h.Allocs, h.AllocsSlack)}},
		{"fluent/post-map26", "Post, a map of 26 strings" + discard, fluent.Map26, true,
			[]h.Target{h.Versus(ours, floor, 0.8), h.ZeroAllocs(ours)}},
		{"fluent/post-count", `Post, map[string]any{"count": j}` + discard, fluent.Count, true,
			[]h.Target{h.Versus(ours, floor, 1.2), h.Above(ours, floor, h.Allocs, h.AllocsSlack)}},
	} {
		s := fluent.Setup{What: r.post}
		row := h.Row{
			Name: r.name, What: r.what, MaxOps: 100_000, Reference: floor, Targets: r.targets,
			Contenders: []h.Contender{
				s.Contender(ours, h.Ours, "fluent.Logger, 4 MiB", fluent.Ours(false, false)),
				s.Contender(floor, h.Reference, "written for this record alone", fluent.Floor),
				s.Contender("forebay sync", h.Reference, "fluent.Logger, Sync: until it is written", fluent.Ours(false, true)),
			},
		}
		if r.rival {
			row.Contenders = append(row.Contenders, s.Contender(ibm, h.Rival, ibmNote, fluent.IBM(false)))
		}
		h.Register(row)
	}
	for _, r := range []struct {
		name   string
		delay  time.Duration
		ops    int
		factor float64
	}{{"fluent/acked", 0, 50_000, 1. / 2}, {"fluent/acked-1ms", 500 * time.Microsecond, 20_000, 1. / 4}} {
		s := fluent.Setup{What: fluent.Map26, Acks: true, Delay: r.delay}
		h.Register(h.Row{
			Name: r.name, What: fmt.Sprintf("a map of 26 strings, until all is decoded and acknowledged over a round trip of %v, 1 goroutine", 2*r.delay),
			MaxOps: r.ops, MaxCount: 3,
			Contenders: []h.Contender{
				s.Contender(ours, h.Ours, "fluent.Logger, 4 MiB", fluent.Ours(true, false)),
				s.Contender(ibm, h.Rival, ibmNote+", RequireAck", fluent.IBM(true)),
			},
			Targets: []h.Target{h.Versus(ours, ibm, r.factor), h.AtMost(ours, h.Allocs, 0.05)},
		})
	}
}
