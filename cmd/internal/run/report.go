package run

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/config"
	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/output"
	"github.com/forebay-log/forebay/internal/plural"
	"github.com/forebay-log/forebay/internal/units"
)

// Conclude returns the final messages, and an error with the exit code. took is the duration of the
// run, and readErr is an error of an input. If the delivery was interrupted, cause is the reason.
func (a Account) Conclude(took time.Duration, readErr, cause error) (text []string, err error) {
	p := a.P
	say := func(format string, args ...any) { text = append(text, fmt.Sprintf(format, args...)) }
	text = append(text, p.finalMessages...)
	if !p.C.Quiet && p.C.Ops.Summary.Value != config.SummaryJSON {
		say("%s", a.summary(took))
	}
	var dropped, lost, late, kept uint64
	faults := uint64(0) // number of errors that do not include a number of lost records
	if p.positionsLost {
		faults++
	}
	if read := p.Read(); read.Lost > 0 {
		say("%d bytes of %d files were lost before they were read", read.Lost, read.LostIn)
		faults++
	}
	var lostBy []string // number of lost records of each output, for a message
	lose := func(to string, n uint64) {
		lost += n
		if n > 0 {
			lostBy = append(lostBy, plural.Records(n)+" for "+to)
		}
	}
	for _, r := range p.removed {
		dropped += r.report.Dropped.Total() - r.report.Dropped[batch.Limited]
		lose(r.to, lostOf(&r.report))
		kept += r.kept
	}
	for _, out := range p.Outs {
		dropped += out.Report.Dropped.Total() - out.Report.Dropped[batch.Limited]
		late += out.Report.Dropped[batch.Shutdown]
		left := out.Report.Kept()
		missing := lostOf(&out.Report)
		repeated, again := false, a.readsAgain(out)
		if n := out.Report.Dropped[batch.Shutdown]; n > 0 && again != "" {
			repeated = true
			say("%s: %s not delivered in time; %s", out.To, plural.Records(n), again)
			missing -= n
			kept += n
		}
		lose(out.To, missing)
		left -= min(left, out.Delivery.Stats().Spool.Parked) // the next run cannot deliver parked records, either
		kept += left
		if out.Refused > 0 && again == "" {
			say("%s: %s, read but not yet accepted when the time limit expired, counted as dropped{shutdown}", out.To, plural.Records(out.Refused))
		}
		if n := out.Report.Unknown; n > 0 {
			why := "no response in time"
			if last := out.Delivery.Stats().Deliver.LastError; last != "" { // it answered, or closed the connection
				why = console.PlainOf(out.To, errors.New(last))
			}
			say("%s: %s; %s sent without an acknowledgement, which may have arrived", out.To, why, plural.Records(n))
		} else if left+missing > 0 && output.NeverReached(out) {
			say("%s: no session in time: the destination did not answer; nothing was sent", out.To)
		}
		if left > 0 {
			say("%s: %s kept for the next run, in %s", out.To, plural.Records(left), out.Spec.KeptIn(out.Report.Pending))
		}
		if out.Err != nil && missing == 0 && !repeated {
			say("%s: %s", out.To, console.PlainOf(out.To, out.Err))
			faults++
		}
		if err := out.Report.Check(); err != nil {
			say("%s: %v; please report this", out.To, err)
			faults++
		}
	}
	if readErr != nil {
		say("%s", readErr)
	}
	if lost > 0 {
		why := ""
		if cause == nil && late > 0 {
			cause = ErrDeadline // Shutdown returns slightly before the deadline
		}
		if cause != nil && cause != context.Canceled {
			why = ": " + cause.Error()
		}
		done := "delivered"
		switch {
		case p.C.DryRun:
			done = "shown, or would be refused"
		case cause == ErrDeadline:
			why += "; allow more time, or keep them for the next run with --spool"
		}
		which := plural.Records(lost)
		if len(p.Outs)+len(p.removed) > 1 { // a record may be lost for several outputs, so a sum would not be a number of records
			which = console.InWords(lostBy, "and")
		}
		say("%s not %s%s", which, done, why)
	}
	switch {
	case p.C.FailOnDrop && dropped+lost+faults > 0:
		return text, exit.With(exit.DropsCode, nil)
	case lost+faults > 0 || readErr != nil:
		return text, exit.With(exit.RuntimeCode, nil)
	case kept > 0:
		return text, exit.With(exit.KeptCode, nil)
	}
	return text, nil
}

// lostOf returns the number of records that were neither delivered nor stored for the next run.
// Records that were dropped by a policy or limit of the user are not included.
func lostOf(r *batch.Report) uint64 {
	return r.Undelivered() - r.Kept() - r.Dropped[batch.Full] - r.Dropped[batch.Oversize] - r.Dropped[batch.Limited]
}

// summary returns a line with the counters of the inputs and the account of each output.
func (a Account) summary(took time.Duration) string {
	p := a.P
	var sb strings.Builder
	read := p.Read()
	if p.C.DryRun {
		sb.WriteString("dry run, nothing was sent: ")
	}
	fmt.Fprintf(&sb, "read %s, %s in %s", plural.Records(read.Records), units.Size(float64(read.Bytes)), units.Duration(took))
	for _, part := range []struct {
		name string
		n    uint64
	}{
		{"left out by transforms", read.Removed},
		{"below --level", read.Filtered},
		{"longer than --max-record (dropped)", read.Oversize},
		{"not in --format, treated as text", read.Unparsed},
		{"bytes lost before they were read", read.Lost},
	} {
		if part.n > 0 {
			fmt.Fprintf(&sb, ", %d %s", part.n, part.name)
		}
	}
	for _, r := range p.removed {
		fmt.Fprintf(&sb, "; %s until %s %s", r.to, r.until.Format(time.TimeOnly), r.report.Account.String())
	}
	for _, out := range p.Outs {
		account := out.Report.Account.String()
		if p.C.DryRun {
			account = strings.Replace(account, " delivered=", " shown=", 1)
		}
		fmt.Fprintf(&sb, "; %s %s", out.To, account)
		switch n, level := out.Below.Load(), out.Spec.Level(); {
		case n > 0 && level.Given:
			fmt.Fprintf(&sb, " (%d below level %s)", n, level)
		case n > 0: // the level was removed while the program ran
			fmt.Fprintf(&sb, " (%d below an earlier level)", n)
		}
		if n := out.Elsewhere.Load(); n > 0 {
			fmt.Fprintf(&sb, " (%d not in where)", n)
		}
		if out.Target.IsGone() {
			sb.WriteString(" (its reader is gone)")
		}
		if out.Report.Unknown > 0 {
			fmt.Fprintf(&sb, " unknown=%d", out.Report.Unknown)
		}
	}
	return sb.String()
}
