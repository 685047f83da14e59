package run

import (
	"encoding/json"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/exit"
)

// A Summary is the summary of a run, written as JSON. The JSON names are a stable interface.
type Summary struct {
	Records  uint64          `json:"records"` // all lines, including those that other fields count
	Bytes    uint64          `json:"bytes"`
	Seconds  float64         `json:"seconds"`
	Filtered uint64          `json:"filtered"`
	Oversize uint64          `json:"oversize"`
	Unparsed uint64          `json:"unparsed"`
	Left     uint64          `json:"left_out,omitempty"`   // records that transforms have removed
	Lost     uint64          `json:"lost_bytes,omitempty"` // bytes in deleted files that were not read
	LostIn   uint64          `json:"lost_files,omitempty"`
	DryRun   bool            `json:"dry_run,omitempty"`
	Outputs  []outputSummary `json:"outputs"`
	Exit     int             `json:"exit"`
}

// outputSummary is the account of one output.
type outputSummary struct {
	To        string            `json:"to"`
	Accepted  uint64            `json:"accepted"`
	Recovered uint64            `json:"recovered"`
	Delivered uint64            `json:"delivered"`
	Handled   uint64            `json:"handled"`
	Dropped   map[string]uint64 `json:"dropped"`
	Pending   pendingSummary    `json:"pending"`
	Unknown   uint64            `json:"unknown"`
	Below     uint64            `json:"below_level,omitempty"` // records below the level of the output
	Elsewhere uint64            `json:"not_in_where,omitempty"`
	Gone      bool              `json:"gone,omitempty"`
}

type pendingSummary struct {
	Slab     uint64 `json:"slab"`
	Spill    uint64 `json:"spill"`
	Inflight uint64 `json:"inflight"`
}

// summaryJSON returns the summary as JSON. took is the duration of the run, and err is its result.
func (a Account) summaryJSON(took time.Duration, err error) string {
	p := a.P
	read := p.Read()
	s := Summary{
		Records: read.Records, Bytes: read.Bytes, Seconds: took.Seconds(),
		Filtered: read.Filtered, Oversize: read.Oversize, Unparsed: read.Unparsed, Left: read.Removed, Lost: read.Lost, LostIn: read.LostIn,
		DryRun: p.C.DryRun, Exit: exit.Code(err),
	}
	for _, out := range p.Outs {
		a := out.Report.Account
		sum := outputSummary{
			To: out.To, Accepted: a.Accepted, Recovered: a.Recovered, Delivered: a.Delivered, Handled: a.Handled,
			Dropped: map[string]uint64{}, Pending: pendingSummary(a.Pending), Unknown: out.Report.Unknown, Below: out.Below.Load(), Elsewhere: out.Elsewhere.Load(), Gone: out.Target.IsGone(),
		}
		for r, n := range a.Dropped {
			if n > 0 {
				sum.Dropped[batch.Reason(r).String()] = n
			}
		}
		s.Outputs = append(s.Outputs, sum)
	}
	line, err := json.Marshal(s)
	if err != nil {
		panic(err) // unreachable, because the summary contains only numbers and texts
	}
	return string(line)
}
