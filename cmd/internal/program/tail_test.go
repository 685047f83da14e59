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
		spec := dest.NewSpec()
		out := &output.Output{To: "out", Spec: &spec, Target: &dest.Target{}, Delivery: d, Err: errors.New("2 records lost")}
		out.Report.Accepted, out.Report.Delivered, out.Report.Dropped[batch.Shutdown] = 5, 3, 2
		in := new(intake.Inlet)
		in.Records.Add(5)
		p := &run.Pipeline{C: &config.Pipeline{Quiet: true}, Inlets: []*run.LiveInput{{Inlet: in, Src: &input.TailSource{Dir: dir}}}, Outs: []*output.Output{out}}
		text, err := run.Account{P: p}.Conclude(0, nil, run.ErrDeadline)
		var code *exit.Error
		if !errors.As(err, &code) || code.Code != want || len(text) != 1 ||
			strings.Contains(text[0], "the next run reads them again, from the positions in state") != (dir != "") {
			t.Errorf("%q: %v: %q", dir, err, text)
		}
	}
}

// The message about undelivered lines names only inputs that have passed lines to the output. It also
// names the other outputs of these inputs, because they get the lines a second time.
func TestLateLinesNameTheirInput(t *testing.T) {
	d, err := deliver.NewOutput(deliver.ToWriter(io.Discard), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	p := &run.Pipeline{C: &config.Pipeline{Quiet: true}}
	for _, c := range []struct {
		name    string
		records uint64
	}{{"app", 5}, {"other", 5}, {"idle", 0}} {
		in := &intake.Inlet{Name: c.name}
		in.Records.Add(c.records)
		p.Inlets = append(p.Inlets, &run.LiveInput{Inlet: in, Src: &input.TailSource{Dir: c.name + ".state"}})
	}
	add := func(name string, delivered uint64, from ...string) *dest.Spec {
		spec := dest.NewSpec()
		spec.Route.From = from
		out := &output.Output{To: name, Spec: &spec, Target: &dest.Target{}, Delivery: d}
		out.Report.Accepted, out.Report.Delivered, out.Report.Dropped[batch.Shutdown] = 5, delivered, 5-delivered
		p.Outs = append(p.Outs, out)
		return &spec
	}
	late := add("late", 0, "app", "idle")
	add("another", 5, "other")
	check := func(want string) {
		t.Helper()
		want = "late: 5 records not delivered in time; the next run reads them again, from the positions in app.state" + want
		if text, _ := (run.Account{P: p}).Conclude(0, nil, run.ErrDeadline); len(text) != 1 || text[0] != want {
			t.Errorf("%q, want %q", text, want)
		}
	}
	check("")
	add("all", 5)
	add("more", 5, "app")
	check("; the other outputs get them again: all, more; a --spool for late prevents that")
	if err := late.ByName["spool"].Set("dir"); err != nil {
		t.Fatal(err)
	}
	check("; the other outputs get them again: all, more")
}
