package program

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/config"
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/input"
	"github.com/forebay-log/forebay/cmd/internal/intake"
	"github.com/forebay-log/forebay/cmd/internal/output"
	"github.com/forebay-log/forebay/cmd/internal/run"
	"github.com/forebay-log/forebay/deliver"
)

// If lines are undelivered at the drain timeout but the next run reads them again, they do not
// count as lost.
func TestLateLinesAreReadAgain(t *testing.T) {
	d, err := deliver.NewOutput(deliver.ToWriter(io.Discard), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for dir, want := range map[string]int{"": exit.RuntimeCode, "state": exit.KeptCode} {
		out := &output.Output{To: "out", Target: &dest.Target{}, Delivery: d, Err: errors.New("2 records lost")}
		out.Report.Accepted, out.Report.Delivered, out.Report.Dropped[batch.Shutdown] = 5, 3, 2
		p := &run.Pipeline{C: &config.Pipeline{Quiet: true}, Inlets: []*run.LiveInput{{Inlet: new(intake.Inlet), Src: &input.TailSource{Dir: dir}}}, Outs: []*output.Output{out}}
		text, err := run.Account{P: p}.Conclude(0, nil, run.ErrDeadline)
		var code *exit.Error
		if !errors.As(err, &code) || code.Code != want || len(text) != 1 ||
			strings.Contains(text[0], "the next run reads them again, from the positions in state") != (dir != "") {
			t.Errorf("%q: %v: %q", dir, err, text)
		}
	}
}
