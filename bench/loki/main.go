// Command loki measures the Loki client and its rivals side by side, with a
// transport that answers 204 in the process. It has a module of its own because of
// what the rivals depend on.
//
//	go -C bench/loki run . [-rows regexp] [-count N]
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"time"

	h "github.com/forebay-log/forebay/bench/harness"
	"github.com/forebay-log/forebay/loki"
)

const name = "forebay"

func rows() []h.Row {
	both := func(label string, n int, exception bool, factor, mb float64) h.Row {
		cs := []h.Contender{ours(name, loki.Protobuf, exception), clientGo(exception)}
		v := h.Verdict(h.Versus(name, "loki-client-go", factor), allocated(name, n, mb), allocs(name, 0.02))
		if !exception {
			cs = append(cs, slogLoki(exception))
			v = h.Verdict(v, h.Versus(name, "slog-loki", 1.0/25))
		}
		return h.Row{
			Name: label, What: fmt.Sprintf("%d events of prebuilt slog.Records, one stream, proto and snappy, after as many to fill pools", n),
			Target:    fmt.Sprintf("≤ %.3f × loki-client-go, ≤ %.2f MB in all, ≤ 0.02 allocs/op", factor, mb),
			Reference: "loki-client-go", MaxOps: n, Warm: n, Contenders: cs, Verdict: v,
		}
	}
	return []h.Row{
		both("loki/simple-10k", 10_000, false, 1.0/6, 0.04),
		both("loki/exception-10k", 10_000, true, 1.0/8, 0.05),
		both("loki/simple-1k", 1000, false, 1.0/6, 0.04),
		both("loki/exception-1k", 1000, true, 1.0/8, 0.05),
		{
			Name: "loki/json-encode", What: "10,000 Simple events as JSON entries, encode only", Target: "≤ 1.3 × hand-written", Reference: "hand-written", MaxOps: 10_000, Warm: 1000,
			Contenders: []h.Contender{encodeOnly(name, loki.JSON, false), handWritten()},
			Verdict:    h.Verdict(h.Versus(name, "hand-written", 1.3), h.ZeroAllocs(name)),
		},
		{
			Name: "loki/format", What: "1,000 events, formatter alone", Target: "0 allocations", MaxOps: 1000, Warm: 1000,
			Contenders: []h.Contender{encodeOnly("simple", loki.Protobuf, false), encodeOnly("exception", loki.Protobuf, true)},
			Verdict:    h.Verdict(h.ZeroAllocs("simple"), h.ZeroAllocs("exception")),
		},
		{
			Name: "loki/json", What: "10,000 Simple events, JSON, end to end", Target: "≤ 0.02 allocs/op", MaxOps: 10_000, Warm: 10_000, Reference: "loki-client-go",
			Contenders: []h.Contender{ours("json", loki.JSON, false), ours("json+gzip", loki.JSONGzip, false), clientGo(false)},
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

func main() {
	only := flag.String("rows", "", "measure only rows whose names match this `regexp`")
	o := h.Options{Benchtime: 2 * time.Second}
	flag.IntVar(&o.Count, "count", 10, "rounds")
	flag.Parse()
	re, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	rep := h.Report{Machine: h.ThisMachine("")}
	for _, row := range rows() {
		if !re.MatchString(row.Name) {
			continue
		}
		res, err := h.Run(row, o)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		res.Print(os.Stdout)
		rep.Rows = append(rep.Rows, res)
	}
	rep.Summary(os.Stdout)
	fmt.Println("\nserilog-sinks-grafana-loki v9, published, 10,000 events: Simple 1.36 MB, Exception 66.2 MB (times are of another machine: 17.66 ms, 121 ms)")
}
