package program

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/internal/plural"
	"github.com/forebay-log/forebay/internal/units"
)

// event tells of what happens to an output with that much memory, as it happens.
func (p *pipeline) event(out *output, e batch.Event, memory string) {
	switch e.Op {
	case "send", "write":
		if errors.Is(e.Err, context.Canceled) {
			return // the time was up, as the summary says
		}
		p.con.Say("%s: %s; retrying, up to %s of lines wait", e.Output, console.Plain(e.Err), memory)
	case "gone":
		p.con.Say("%s: %s; this output is closed", e.Output, console.Plain(e.Err))
	case "poison":
		if p.c.dryRun {
			p.con.Say("%s: %s; it would be refused", e.Output, console.Plain(e.Err))
		} else {
			p.con.Say("%s: refuses records permanently: %s; dropping them", e.Output, console.Plain(e.Err))
		}
	case "recovered":
		p.con.Say("%s: works again", e.Output)
	case "drop":
		if strings.HasSuffix(e.Err.Error(), batch.Full.String()) { // others have been said, or are in the summary
			out.full.Store(true)
			p.con.Say("%s: its memory is full; dropping records (--when-full %s)", e.Output, out.c.Text("when-full"))
		}
	case "drop-end":
		if out.full.Swap(false) {
			p.con.Say("%s: no longer dropping; %s dropped so far", e.Output, plural.Records(e.Count))
		}
	case "panic":
		p.con.Say("%s: %v", e.Output, e.Err)
	case "recovered-from-disk":
		p.con.Say("%s: delivering %s of an earlier run first", e.Output, plural.Records(e.Count))
	case "crash-safe", "recover":
		p.con.Say("%s: --crash-safe: %s", e.Output, console.Plain(e.Err))
	default:
		p.con.Say("%s: %s: %s", e.Output, e.Op, console.Plain(e.Err))
	}
}

// neverReached reports whether there was neither a session of the destination nor an error
// that would tell why.
func neverReached(out *output) bool {
	st := out.d.Stats().Deliver
	return out.report.Delivered == 0 && st.Attempts == 0 && st.Retries == 0 && !st.Gone
}

// conclude returns what is to be said at the end, and how the program ends.
func (p *pipeline) conclude(took time.Duration, readErr, cause error) (text []string, err error) {
	say := func(format string, args ...any) { text = append(text, fmt.Sprintf(format, args...)) }
	text = append(text, p.lastly...)
	if !p.c.quiet && p.c.ops.summary.Value != summaryJSON {
		say("%s", p.summary(took))
	}
	again := p.readsAgain()
	var dropped, lost, late, kept uint64
	faults := uint64(0) // that are said, and name no lost record
	if p.unstored {
		faults++
	}
	if read := p.read(); read.lost > 0 {
		say("%d bytes of %d files were lost before they were read", read.lost, read.lostIn)
		faults++
	}
	for _, r := range p.gone {
		dropped += r.report.Dropped.Total() - r.report.Dropped[batch.Limited]
		lost += r.report.Undelivered() - r.report.Kept() - r.report.Dropped[batch.Full] - r.report.Dropped[batch.Oversize] - r.report.Dropped[batch.Limited]
		kept += r.kept
	}
	for _, out := range p.outs {
		dropped += out.report.Dropped.Total() - out.report.Dropped[batch.Limited]
		// What a policy or a limit drops was asked for. What the destination did not take,
		// or not in time, is lost.
		late += out.report.Dropped[batch.Shutdown]
		left := out.report.Kept()
		missing := out.report.Undelivered() - left - out.report.Dropped[batch.Full] - out.report.Dropped[batch.Oversize] - out.report.Dropped[batch.Limited]
		repeated := false
		if n := out.report.Dropped[batch.Shutdown]; n > 0 && again != "" {
			repeated = true
			say("%s: %s not delivered in time; %s", out.to, plural.Records(n), again)
			missing -= n
			kept += n
		}
		lost += missing
		left -= min(left, out.d.Stats().Spool.Parked) // they wait for another destination
		kept += left
		if out.refused > 0 && again == "" {
			say("%s: %s, read but not yet accepted when the time was up, counted as dropped{shutdown}", out.to, plural.Records(out.refused))
		}
		if n := out.report.Unknown; n > 0 {
			say("%s: no response in time: %s sent, which may have arrived", out.to, plural.Records(n))
		} else if left+missing > 0 && neverReached(out) {
			say("%s: no session in time: the destination did not answer; nothing was sent", out.to)
		}
		if left > 0 {
			say("%s: %s kept for the next run, in %s", out.to, plural.Records(left), out.c.keptIn(out.report.Pending))
		}
		if out.err != nil && missing == 0 && !repeated {
			say("%s: %s", out.to, console.Plain(out.err))
			faults++
		}
		if err := out.report.Check(); err != nil {
			say("%s: %v; please report this", out.to, err)
			faults++
		}
	}
	if readErr != nil {
		say("%s", readErr)
	}
	if lost > 0 {
		why := ""
		if cause == nil && late > 0 {
			cause = errDeadline // Shutdown keeps a moment of it to settle the account
		}
		if cause != nil && cause != context.Canceled {
			why = ": " + cause.Error()
		}
		done := "delivered"
		if p.c.dryRun {
			done = "shown, or would be refused"
		}
		say("%s not %s%s", plural.Records(lost), done, why)
	}
	switch {
	case p.c.failOnDrop && dropped+lost+faults > 0:
		return text, exit.With(exit.DropsCode, nil)
	case lost+faults > 0 || readErr != nil:
		return text, exit.With(exit.RuntimeCode, nil)
	case kept > 0:
		return text, exit.With(exit.KeptCode, nil)
	}
	return text, nil
}

// summary is one line: what was read, what became of it, and the account of each
// output.
func (p *pipeline) summary(took time.Duration) string {
	var sb strings.Builder
	read := p.read()
	if p.c.dryRun {
		sb.WriteString("dry run, nothing was sent: ")
	}
	fmt.Fprintf(&sb, "read %s, %s in %s", plural.Records(read.records), units.Size(float64(read.bytes)), units.Duration(took))
	for _, part := range []struct {
		name string
		n    uint64
	}{
		{"left out by transforms", read.left},
		{"below --level", read.filtered},
		{"longer than --max-record (dropped)", read.oversize},
		{"not in --format, treated as text", read.unparsed},
		{"bytes lost before they were read", read.lost},
	} {
		if part.n > 0 {
			fmt.Fprintf(&sb, ", %d %s", part.n, part.name)
		}
	}
	for _, r := range p.gone {
		fmt.Fprintf(&sb, "; %s until %s %s", r.to, r.until.Format(time.TimeOnly), r.report.Account.String())
	}
	for _, out := range p.outs {
		account := out.report.Account.String()
		if p.c.dryRun {
			account = strings.Replace(account, " delivered=", " shown=", 1)
		}
		fmt.Fprintf(&sb, "; %s %s", out.to, account)
		if n := out.below.Load(); n > 0 {
			fmt.Fprintf(&sb, " (%d below level %s)", n, out.c.Level().String())
		}
		if n := out.elsewhere.Load(); n > 0 {
			fmt.Fprintf(&sb, " (%d not in where)", n)
		}
		if out.t.isGone() {
			sb.WriteString(" (its reader is gone)")
		}
		if out.report.Unknown > 0 {
			fmt.Fprintf(&sb, " unknown=%d", out.report.Unknown)
		}
	}
	return sb.String()
}
