// Command loki measures the Loki client and its rivals side by side, with a
// transport that answers 204 in the process. It has a module of its own because of
// what the rivals depend on.
//
//	GOWORK=off go -C bench/loki run . [-rows regexp] [-count N]
//
// make bench runs it, too; its results are in the same file.
package main

import (
	"fmt"
	"os"
	"time"

	h "github.com/forebay-log/forebay/bench/harness"
)

const name = "forebay"

func rows() []h.Row {
	// As in the source, a sample begins with a logger that is new and has sent
	// nothing: only making it, and its events, are outside of the time.
	both := func(label string, n int, exception bool, factor, mb float64) h.Row {
		cs := []h.Contender{ours(name, handler, "protobuf", exception, 0), ours("native", native, "protobuf", exception, 0),
			ours("warm", handler, "protobuf", exception, n), clientGo(exception)}
		v := h.Verdict(allocated(name, n, mb), allocated("native", n, mb))
		target := fmt.Sprintf("≤ %.2f MB in all", mb)
		if n == 10_000 {
			// The native Logger is what the target allows beside slog.Records; those are
			// shown, and so is what warming up would gain.
			v = h.Verdict(h.Versus("native", "loki-client-go", factor), v, allocs(name, 0.02), allocs("native", 0.02))
			target = fmt.Sprintf("≤ %.3f × loki-client-go, %s, ≤ 0.02 allocs/op", factor, target)
		}
		if !exception {
			cs = append(cs, slogLoki(exception))
			if n == 10_000 {
				v = h.Verdict(v, h.Versus("native", "slog-loki", 1.0/25))
				target += ", 25 × as fast as slog-loki"
			}
		}
		return h.Row{
			Name: label, What: fmt.Sprintf("%d prebuilt events, one stream, proto and snappy, new logger, until closed", n),
			Target: target, Reference: "loki-client-go", MaxOps: n, Contenders: cs, Verdict: v,
		}
	}
	format := func(label string, exception bool) h.Row {
		return h.Row{
			Name: label, What: "1,000 events, formatter alone", Target: "0 allocations", MaxOps: 1000, Warm: 1000,
			Contenders: []h.Contender{encodeOnly("protobuf", "protobuf", exception), encodeOnly("json", "json", exception)},
			Verdict:    h.Verdict(h.ZeroAllocs("protobuf"), h.ZeroAllocs("json")),
		}
	}
	return []h.Row{
		both("loki/simple-10k", 10_000, false, 1.0/6, 0.04),
		both("loki/exception-10k", 10_000, true, 1.0/8, 0.05),
		both("loki/simple-1k", 1000, false, 1.0/6, 0.04),
		both("loki/exception-1k", 1000, true, 1.0/8, 0.05),
		{
			Name: "loki/json-encode", What: "10,000 Simple events as JSON entries, encode only", Target: "≤ 1.3 × hand-written", Reference: "hand-written", MaxOps: 10_000, Warm: 1000,
			Contenders: []h.Contender{encodeOnly(name, "json", false), handWritten()},
			Verdict:    h.Verdict(h.Versus(name, "hand-written", 1.3), h.ZeroAllocs(name)),
		},
		format("loki/format-simple", false),
		format("loki/format-exception", true),
		{
			Name: "loki/json", What: "10,000 Simple events, JSON, end to end", Target: "≤ 0.02 allocs/op", MaxOps: 10_000, Reference: "loki-client-go",
			Contenders: []h.Contender{ours("json", handler, "json", false, 0), ours("json+gzip", handler, "json+gzip", false, 0), clientGo(false)},
			Verdict:    h.Verdict(allocs("json", 0.02), allocs("json+gzip", 0.02)),
		},
	}
}

// allocs requires at most so many allocations per event.
func allocs(who string, limit float64) func(*h.Result) []h.Check {
	return func(r *h.Result) []h.Check {
		return check(r, who, limit, "allocs/op", func(c *h.Column) float64 { return c.Allocs })
	}
}

// allocated requires that n events allocate at most mb times 10^6 bytes.
func allocated(who string, n int, mb float64) func(*h.Result) []h.Check {
	return func(r *h.Result) []h.Check {
		return check(r, who, mb, fmt.Sprintf("MB for %d events", n), func(c *h.Column) float64 { return c.AllocBytes * float64(n) / 1e6 })
	}
}

func check(r *h.Result, who string, limit float64, what string, f func(*h.Column) float64) []h.Check {
	c := r.Column(who)
	if c == nil {
		return []h.Check{{Text: who + " was not measured", Status: h.NotMeasured}}
	}
	out := h.Check{Got: f(c), Limit: limit, Status: h.OK, Text: fmt.Sprintf("%s %.3f %s (target ≤ %g)", who, f(c), what, limit)}
	if out.Got > limit {
		out.Status = h.Short
	}
	return []h.Check{out}
}

func init() {
	h.Register(rows()...)
}

// main writes into the file of package bench. A sample of two seconds has all events of a
// row, also where a rival needs 100 µs for each.
func main() {
	os.Exit(h.Program("../results/latest.json", 2*time.Second))
}
