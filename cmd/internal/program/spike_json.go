package program

import (
	"encoding/json"
	"io"

	"github.com/forebay-log/forebay/cmd/internal/spike"
)

// printSpikeJSON prints the table and what was driven. Times are in seconds.
func printSpikeJSON(w io.Writer, cfg *spike.Config, results []*spike.Result) error {
	type plan struct {
		SlabBytes      int     `json:"slab_bytes"`
		SlabCount      int     `json:"slab_count"`
		MemoryBytes    int64   `json:"memory_bytes"`
		AbsorbsSeconds float64 `json:"absorbs_seconds"`
	}
	type workload struct {
		Rate            float64 `json:"records_per_second"`
		RecordBytes     int     `json:"record_bytes"`
		Callers         int     `json:"callers"`
		LatencySeconds  float64 `json:"latency_seconds"`
		DrainBytes      float64 `json:"drain_bytes_per_second,omitempty"`
		StallSeconds    float64 `json:"stall_seconds"`
		EverySeconds    float64 `json:"every_seconds"`
		DurationSeconds float64 `json:"duration_seconds"`
		Seed            uint64  `json:"seed"`
	}
	type result struct {
		Mode    string             `json:"mode"`
		Waits   map[string]float64 `json:"caller_waits_seconds"`
		Records uint64             `json:"records"`
		Late    uint64             `json:"late"` // due, and not made by the end
		Lost    uint64             `json:"lost"`
		Memory  int                `json:"memory_bytes"`
		Stalled int                `json:"stalls"` // that held up the destination
	}
	out := struct {
		Workload workload `json:"workload"`
		Plan     plan     `json:"plan"`
		Results  []result `json:"results"`
	}{
		Workload: workload{cfg.Rate, cfg.Size, cfg.Callers, cfg.Latency.Seconds(), cfg.Drain,
			cfg.Stall.Seconds(), cfg.Every.Seconds(), cfg.Duration.Seconds(), cfg.Seed},
		Plan: plan{cfg.Slabs.SlabBytes, cfg.Slabs.SlabCount, cfg.Slabs.MemoryBytes, cfg.Slabs.Absorbs.Seconds()},
	}
	for _, r := range results {
		o := result{r.Mode, map[string]float64{}, r.Written, r.Late, r.Lost, r.Memory, r.Stalled}
		for _, s := range shown {
			o.Waits[s.name] = r.Quantile(s.q).Seconds()
		}
		out.Results = append(out.Results, o)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}
