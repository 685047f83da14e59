package program

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/deliver"
)

// What the next run reads again is not lost when the time is up.
func TestLateLinesAreReadAgain(t *testing.T) {
	d, err := deliver.NewOutput(deliver.ToWriter(io.Discard), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for dir, want := range map[string]int{"": exit.RuntimeCode, "state": exit.KeptCode} {
		out := &output{to: "out", t: &target{}, d: d, err: errors.New("2 records lost")}
		out.report.Accepted, out.report.Delivered, out.report.Dropped[batch.Shutdown] = 5, 3, 2
		p := &pipeline{c: &pipeConfig{quiet: true}, inlets: []*inlet{{src: &tailSource{dir: dir}}}, outs: []*output{out}}
		text, err := p.conclude(0, nil, errDeadline)
		var code *exit.Error
		if !errors.As(err, &code) || code.Code != want || len(text) != 1 ||
			strings.Contains(text[0], "the next run reads them again, from the positions in state") != (dir != "") {
			t.Errorf("%q: %v: %q", dir, err, text)
		}
	}
}
