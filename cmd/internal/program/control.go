package program

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/control"
	"github.com/forebay-log/forebay/cmd/internal/setting"
)

// noControl is what --control says for no socket.
const noControl = "none"

// serveControl serves the state of p, and the pages, on the control socket. Where the
// default one cannot be had, nothing is said: the program does its work without.
func (s *opsServer) serveControl(path string, p *pipeline, pages http.Handler) error {
	if path == noControl {
		return nil
	}
	ln, err := control.Listen(path, p.c.name)
	switch {
	case err != nil && path == "":
		return nil
	case err != nil:
		return fmt.Errorf("--control %s: cannot listen: %w", path, err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", pages)
	mux.HandleFunc("PUT /-/level", p.level)
	start := time.Now()
	s.control = control.Serve(ln, func() control.State {
		now := control.State{
			Name: p.c.name, Verb: p.c.verb(), PID: os.Getpid(), Version: buildInfo().Version,
			Start: start, Now: time.Now(), Ending: s.ending.Load(),
		}
		p.describe(&now)
		return now
	}, mux)
	return nil
}

// verb is the command that runs the pipeline.
func (c *pipeConfig) verb() string {
	switch {
	case c.named:
		return "run"
	case c.tail != nil:
		return "tail"
	}
	return "pipe"
}

// describe says in what state the pipeline is. Any goroutine may ask.
func (p *pipeline) describe(s *control.State) {
	read := p.read()
	s.Input = control.Input{
		Records: read.records, Bytes: read.bytes, Filtered: read.filtered,
		Oversize: read.oversize, Unparsed: read.unparsed,
	}
	outs := p.outputs()
	s.Outputs = make([]control.Output, 0, len(outs))
	for _, out := range outs {
		s.Outputs = append(s.Outputs, out.describe(s.Now))
	}
}

// describe says in what state the output is.
func (out *output) describe(now time.Time) control.Output {
	st := out.d.Stats()
	out.limit(&st.Account)
	o := control.Output{
		To: out.to, Accepted: st.Accepted, Recovered: st.Recovered, Delivered: st.Delivered, Handled: st.Handled,
		Dropped: map[string]uint64{}, Pending: control.Pending(st.Pending), Below: out.below.Load(), Bytes: st.Deliver.Bytes,
		Slabs: control.Slabs{InUse: st.Slab.SlabsInUse, Count: st.Slab.SlabCount, Bytes: st.Slab.SlabBytes},
		Waits: control.Waits{Now: st.Slab.Waiting, Count: st.Slab.Waits, Seconds: st.Slab.WaitTime.Seconds()},
		Oldest: control.Oldest{
			Wait: max(st.Slab.OldestWait, st.Deliver.OldestWait).Seconds(),
			Age:  max(st.Slab.OldestAge, st.Deliver.OldestAge).Seconds(),
		},
		Circuit: st.Deliver.Breaker.String(), Trips: st.Deliver.Trips, Attempts: st.Deliver.Attempts, Retries: st.Deliver.Retries,
		FailingSince: st.Deliver.FailingSince, Gone: st.Deliver.Gone || out.t.isGone(),
	}
	if text := st.Deliver.LastError; text != "" {
		o.LastError = setting.RedactText(console.Plain(errors.New(text)))
	}
	for why, n := range st.Dropped {
		if n > 0 {
			o.Dropped[batch.Reason(why).String()] = n
		}
	}
	if disk := &st.Spool; disk.MaxBytes > 0 {
		o.Spool = &control.Spool{Records: disk.Records, Bytes: disk.Bytes, MaxBytes: disk.MaxBytes, Parked: disk.Parked}
		if !disk.Oldest.IsZero() {
			kept := max(0, now.Sub(disk.Oldest)).Seconds()
			o.Oldest.Wait, o.Oldest.Age = max(o.Oldest.Wait, kept), max(o.Oldest.Age, kept)
		}
	}
	return o
}
