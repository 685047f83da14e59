package output

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/control"
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/outputhook"
	"github.com/forebay-log/forebay/internal/plural"
	"github.com/forebay-log/forebay/slab"
)

// An Output is a destination with its memory, its delivery and the counts of its records.
type Output struct {
	Env      *Env
	Spec     *dest.Spec
	To       string // address without secrets, for messages
	Dir      string // name of the directories of the output in --spool and --crash-safe
	Target   *dest.Target
	Delivery *deliver.Output
	Fallback *dest.Fallback // nil if --fallback is not set

	Retries bool        // deliveries are retried: an option requires it, or the destination is remote
	failing atomic.Bool // a failure was reported and has not ended
	full    atomic.Bool // dropped records were reported and drops have not ended

	Below     atomic.Uint64 // number of lines below the level of the output
	Limited   atomic.Uint64 // number of records that exceeded the rate of a limit rule
	Elsewhere atomic.Uint64 // number of lines that the key where does not select

	once    sync.Once    // Shutdown runs once
	Drained atomic.Bool  // all records are delivered or on disk, and no input writes further records
	Early   bool         // Shutdown began before the reader ended
	Report  batch.Report // result of Shutdown
	Err     error
	Refused uint64 // number of records written after Shutdown
	Kept    uint64 // number of these records that are in a read-ahead file for the next run
}

// Slabs returns statistics of the output's memory.
func (out *Output) Slabs() slab.Stats { return out.Delivery.Stats().Slab }

// Connect connects the target with memory and delivery.
func (out *Output) Connect() (err error) {
	o := out.Spec.SlabOptions(out.Dir, out.Target, out.Env.MaxRecord)
	o.Name, o.OnError = out.To, func(e batch.Event) { out.event(e, dest.Memory(o)) }
	out.Retries = out.Spec.Delivers() || out.Target.Remote
	out.Delivery, err = out.newOutput(o)
	return err
}

// Shutdown delivers the remaining records until ctx is done. Only the first call has an
// effect.
func (out *Output) Shutdown(ctx context.Context) {
	out.once.Do(func() {
		keeps := out.Drained.Load() // all undelivered records are on disk, so there is no need to deliver them now
		if !keeps && out.Target.IsGone() && out.Fallback == nil && out.Spec.Text("spool") != "" {
			keeps = out.Delivery.Commit(ctx) == nil
		}
		if keeps {
			outputhook.Drain(out.Delivery, time.Now()) // without further attempts to deliver
		}
		out.Report, out.Err = out.Delivery.Shutdown(ctx)
	})
}

// Settle updates Report: it adds the records that the reader wrote after Shutdown. They count as
// dropped, unless a read-ahead file keeps them for the next run. Shutdown must have returned, and
// the reader must have ended.
func (out *Output) Settle() {
	out.Refused = out.Slabs().Refused - out.Kept
	out.Report.Accepted += out.Refused + out.Kept
	out.Report.Dropped[batch.Shutdown] += out.Refused
	out.Report.Pending.Slab += out.Kept
	out.Limit(&out.Report.Account)
}

// Limit adds the records that exceeded the rate of a limit rule to the account. They did not reach
// the memory of the output.
func (out *Output) Limit(a *batch.Account) {
	n := out.Limited.Load()
	a.Accepted += n
	a.Dropped[batch.Limited] += n
}

// ReopenOne reopens the file of t. If another request arrives during the call, it reopens the file
// again.
func (e *Env) ReopenOne(t *dest.Target) {
	for {
		n := t.ReopenRequests.Load()
		if err := t.Reopen(); err != nil && !errors.Is(err, os.ErrClosed) { // ErrClosed: the program is ending
			e.Console.Say("%s", console.Plain(err))
		}
		if t.ReopenRequests.CompareAndSwap(n, 0) {
			return
		}
	}
}

// event prints a message about an event of the output's memory. The text memory describes the size
// of the memory.
func (out *Output) event(e batch.Event, memory string) {
	switch e.Op {
	case "send", "write":
		if errors.Is(e.Err, context.Canceled) {
			return // the summary reports the end of the time limit
		}
		out.Env.Console.Say("%s: %s; retrying; up to %s of lines wait in memory", e.Output, console.PlainOf(e.Output, e.Err), memory)
	case "gone":
		out.Env.Console.Say("%s: %s; this output is closed", e.Output, console.Plain(e.Err))
	case "poison":
		if out.Env.DryRun {
			out.Env.Console.Say("%s: %s; it would be refused", e.Output, console.Plain(e.Err))
		} else {
			out.Env.Console.Say("%s: refuses records permanently: %s; dropping them", e.Output, console.Plain(e.Err))
		}
	case "recovered":
		out.Env.Console.Say("%s: works again", e.Output)
	case "drop":
		switch n := e.Dropped[batch.Full]; { // other reasons are reported by other events
		case n == 0:
		case out.full.Swap(true):
			out.Env.Console.Say("%s: its memory is full; dropped %s more (--when-full %s)", e.Output, plural.Records(n), out.Spec.Text("when-full"))
		default:
			out.Env.Console.Say("%s: its memory is full; dropping records (--when-full %s)", e.Output, out.Spec.Text("when-full"))
		}
	case "drop-end":
		if out.full.Swap(false) {
			out.Env.Console.Say("%s: no longer dropping; %s dropped", e.Output, plural.Records(e.Dropped[batch.Full]))
		}
	case "panic":
		out.Env.Console.Say("%s: %v", e.Output, e.Err)
	case "recovered-from-disk":
		out.Env.Console.Say("%s: delivering %s of an earlier run first", e.Output, plural.Records(e.Count))
	case "crash-safe", "recover":
		out.Env.Console.Say("%s: --crash-safe: %s", e.Output, console.Plain(e.Err))
	default:
		out.Env.Console.Say("%s: %s: %s", e.Output, e.Op, console.Plain(e.Err))
	}
}

// NeverReached reports whether no batch was sent to the destination although no error has occurred.
func NeverReached(out *Output) bool {
	st := out.Delivery.Stats().Deliver
	return out.Report.Delivered == 0 && st.Attempts == 0 && st.Retries == 0 && !st.Gone
}

// Describe returns the state of the output for forebay top.
func (out *Output) Describe(now time.Time) control.Output {
	st := out.Delivery.Stats()
	out.Limit(&st.Account)
	o := control.Output{
		To: out.To, Accepted: st.Accepted, Recovered: st.Recovered, Delivered: st.Delivered, Handled: st.Handled,
		Dropped: map[string]uint64{}, Pending: control.Pending(st.Pending), Below: out.Below.Load(), Bytes: st.Deliver.Bytes,
		Slabs: control.Slabs{InUse: st.Slab.SlabsInUse, Count: st.Slab.SlabCount, Bytes: st.Slab.SlabBytes},
		Waits: control.Waits{Now: st.Slab.Waiting, Count: st.Slab.Waits, Seconds: st.Slab.WaitTime.Seconds()},
		Oldest: control.Oldest{
			Wait: max(st.Slab.OldestWait, st.Deliver.OldestWait).Seconds(),
			Age:  max(st.Slab.OldestAge, st.Deliver.OldestAge).Seconds(),
		},
		Circuit: st.Deliver.Breaker.String(), Trips: st.Deliver.Trips, Attempts: st.Deliver.Attempts, Retries: st.Deliver.Retries,
		FailingSince: st.Deliver.FailingSince, Gone: st.Deliver.Gone || out.Target.IsGone(),
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

// CrashDirs returns the --crash-safe directories of outs in the order of the outputs.
func CrashDirs(outs []*Output) (dirs []string) {
	for _, out := range outs {
		if dir := out.Spec.Text("crash-safe"); dir != "" && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// AnySafe reports whether an output has crash-safe slabs. If --crash-safe could not be used for an
// output, this was already reported.
func AnySafe(outs []*Output) bool {
	for _, out := range outs {
		if out.Slabs().CrashUnsafe == "" {
			return true
		}
	}
	return false
}
