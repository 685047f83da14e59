package deliver

import (
	"cmp"
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/closetime"
	"github.com/forebay-log/forebay/internal/slablog"
	"github.com/forebay-log/forebay/slab"
	"github.com/forebay-log/forebay/spool"
)

// An Output is everything between a logger and a destination: memory (package slab), delivery (the
// outlet) and, optionally, a spool (package spool), crash-safe memory, a fallback and dead letters.
//
//	WriteRecord ─▶ slabs ‖ outlet ─▶ destination
//	                         ├─▶ fallback, dead letters
//	                         └─▶ spool
//
// It is an output of a forebay.Router, and an io.WriteCloser for other loggers. All
// methods may be called from any goroutine, also during and after Close.
type Output struct {
	opt    OutputOptions // with the defaults
	outlet *outlet
	w      *slablog.Writer
	log    *slablog.Log
	files  files
}

// NewOutput returns an Output in front of a destination, which need not be up. The Output owns
// dest; if NewOutput fails, it closes dest. The error names every invalid option. o may be nil. The
// goroutines of the Output end with [Output.Close].
func NewOutput(dest Destination, o *OutputOptions) (*Output, error) {
	r, err := o.withDefaults(dest)
	r.Deliver.askEvery = cmp.Or(max(0, r.Slab.FlushInterval), 100*time.Millisecond)
	out := &Output{opt: r}
	if err = errors.Join(err, out.files.open(&out.opt)); err != nil {
		_, invalid := r.Deliver.resolve(new(Traits))
		err = errors.Join(err, invalid)
	} else if out.outlet, err = newOutlet(dest, &out.opt.Deliver); err == nil {
		out.w, out.log, err = slablog.New(&out.opt.Slab, out.outlet.consumer())
	}
	if err != nil {
		closeDestination(dest)
		return nil, errors.Join(err, out.files.close())
	}
	out.outlet.start(slabLog{out.log})
	return out, nil
}

// closeDestination closes a destination that no Output uses. It passes an ended context, so that
// Close does not wait.
func closeDestination(dest Destination) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if c, ok := dest.(closer); ok {
		c.Close(ended)
	}
}

// Write accepts p as one record. It copies p. If memory is full, OutputOptions.Slab.WhenFull may
// drop the record. Write returns len(p) and nil even then; the drop is counted ([Output.Stats]),
// and [Output.WriteRecord] returns an error for it. The error is slab.ErrOversize for a record
// larger than Slab.MaxRecord, and wraps [batch.ErrClosed] after Close.
func (o *Output) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if err != nil && len(p) > o.opt.Slab.MaxRecord {
		o.deadLetter(p, batch.Meta{}, err, errOversize, o.w.Codec())
	}
	return n, err
}

// WriteRecord accepts a record and its Meta. It copies p. The error wraps slab.ErrDropped for a
// dropped record, and [batch.ErrClosed] after Close. Both are counted.
func (o *Output) WriteRecord(p []byte, m batch.Meta) error {
	err := o.w.WriteRecord(p, m)
	if err != nil && len(p) > o.opt.Slab.MaxRecord {
		o.deadLetter(p, m, err, errOversize, o.w.Codec())
	}
	return err
}

// refuse implements [outputhook.Refuse].
func (o *Output) refuse(p []byte, m batch.Meta, r batch.Reason, cause error) error {
	err := o.w.Refuse(r)
	if p != nil {
		o.deadLetter(p, m, err, cause, nil)
	}
	return err
}

var errOversize = errors.New("the record is longer than MaxRecord")

// deadLetter writes a dead letter about a record that was not accepted and is counted as dropped.
// It does nothing after Close. The parameter c is the codec of the record; nil means text.
func (o *Output) deadLetter(p []byte, m batch.Meta, err, cause error, c batch.Codec) {
	if o.opt.Deliver.DeadLetter == nil || errors.Is(err, batch.ErrClosed) {
		return
	}
	one := &batch.Batch{Codec: c} // Append copies p, because p belongs to the caller
	one.Append(p, 0, m)
	o.outlet.dead.add(one, unacceptedError{cause})
}

// Codec returns the codec of the records; nil for plain bytes.
func (o *Output) Codec() batch.Codec { return o.w.Codec() }

// Name returns OutputOptions.Name.
func (o *Output) Name() string { return o.opt.Name }

// Flush waits until everything accepted before the call is delivered or accounted for, and flushes
// the destination, if the destination has buffers. It does not wait beyond the end of ctx. If the
// circuit is open, Flush probes at once, at most once every Retry.Min. It returns an error that
// wraps [ErrOpen] when the circuit opens, when a probe fails, or if the destination has asked for a
// longer delay. With a handler or a spool, it first waits until the handler or the spool has the
// waiting records.
func (o *Output) Flush(ctx context.Context) error { return o.outlet.Flush(ctx) }

// Commit waits until everything accepted before the call is delivered, accounted for or in the
// spool. An input that has kept those records may then discard them. Unlike Flush, it waits while
// the circuit is open, and for records that are parked in memory. Commit does not wait beyond the
// end of ctx; after Close it fails with [batch.ErrClosed].
//
// Committed records survive a loss of power if they are in a file.File whose Options.Sync is
// "always", or in a spool whose [spool.Options] guarantee it, or if the destination stores them
// durably. Handled, refused and dropped records are accounted for and not synced.
func (o *Output) Commit(ctx context.Context) error { return o.outlet.commit(ctx) }

// Sync is Flush within CloseTimeout, followed by a sync of the spool and of the destination to
// stable storage, where supported, even while the circuit is open. A fallback and the dead letters
// are not synced.
func (o *Output) Sync() error {
	ctx, cancel := context.WithTimeout(context.Background(), o.opt.CloseTimeout)
	defer cancel()
	return o.outlet.Sync(ctx)
}

// Account returns the number of accepted records, and how many of them have each outcome. After
// Shutdown it equals the account of the report, even if a hanging call of the destination or the
// spool returns later.
func (o *Output) Account() batch.Account { return o.outlet.Account() }

// OutputStats is a snapshot of an [Output].
type OutputStats struct {
	batch.Account
	Refused uint64 // records written after Close; not part of the account
	Slab    slab.Stats
	Deliver Stats
	Spool   spool.Stats // statistics of the spool in SpoolDir
}

// Stats returns a snapshot. It never waits for the destination.
func (o *Output) Stats() OutputStats {
	s := OutputStats{Deliver: o.outlet.Stats()}
	o.outlet.led.read(func(theirs batch.Account) { s.Slab = o.log.Stats(theirs) })
	s.Account, s.Refused = s.Slab.Account, s.Slab.Refused
	if o.files.spool != nil {
		s.Spool = o.files.spool.Stats()
	}
	return s
}

// Subscribe returns a channel with the transitions of the circuit from now on, and a function that
// ends the subscription. The channel also gets failures that do not change the state of the
// circuit. A subscriber that is too slow misses the newest failures and the oldest transitions.
// Close closes the channel.
func (o *Output) Subscribe() (<-chan Transition, func()) { return o.outlet.brk.subscribers.subscribe() }

var _ io.WriteCloser = (*Output)(nil)

// Close is [Output.Shutdown] within CloseTimeout, without the report.
func (o *Output) Close() error {
	_, err := o.Shutdown(context.Background())
	return err
}

// Shutdown refuses further records, settles the accepted ones, closes the destination and
// everything else, and reports.
//
// Shutdown returns when that is done, or when ctx ends, whatever the destination does. If ctx has
// no deadline, Shutdown takes at most CloseTimeout. The destination has the first 70 % of the time.
// Error handlers have the time until 85 % of it is over, and the spool has the rest. A call or
// callback that hangs is abandoned no later than 0.2 s after the end of ctx. If ctx has ended
// before the spool could be written, Shutdown uses up to 0.5 s more to write to it, and up to
// another 0.5 s if the disk hangs.
//
// The error is nil if this Shutdown lost nothing: all pending records are delivered, handled, dead
// letters, or safely kept on disk for the next start, in the spool or crash-safe memory
// ([batch.Report.Kept]). Otherwise it has the number of lost records, the reason and the remedy,
// and wraps context.DeadlineExceeded if there was too little time. Records that were dropped before
// this Shutdown are counted in the report and not in the error.
//
// Report.Unknown is the number of lost records that were sent but not answered, and may therefore
// have arrived. If the destination accepts a record of the spool after the report, that record
// stays pending in the account, and the next start may send it again.
//
// Shutdown may be called concurrently with all other methods and more than once: later calls wait
// for the first one and return the same result.
func (o *Output) Shutdown(ctx context.Context) (batch.Report, error) {
	ctx, cancel := closetime.Bounded(ctx, o.opt.CloseTimeout)
	defer cancel()
	return o.outlet.once(ctx, o.shutdown)
}

// shutdown closes the outlet and then the files, which the outlet uses. Each step must end early
// enough to leave time for the later steps. If no time is left, the disk gets half a second more,
// because records in memory would be lost otherwise.
func (o *Output) shutdown(ctx context.Context) (batch.Report, error) {
	limit, cancel := ctx, context.CancelFunc(func() {})
	if o.outlet.set.spools() {
		limit, cancel = closetime.WithDisk(ctx, closetime.Disk-2*closetime.Reserve(closetime.Disk), func() { o.outlet.Drain(time.Now()) })
	}
	defer cancel()
	sooner, cancelSooner := closetime.Sooner(limit) // so that time remains for the account and the files
	defer cancelSooner()
	rep, err := o.outlet.stop(sooner)
	var in []string
	if rep.Pending.Slab > 0 && o.opt.CrashDir != "" {
		in = append(in, o.opt.CrashDir)
	}
	if rep.Pending.Spill > 0 && o.opt.SpoolDir != "" {
		in = append(in, o.opt.SpoolDir)
	}
	rep.KeptIn = strings.Join(in, ", ")
	disk, cancelDisk := closetime.WithDisk(ctx, closetime.Disk, func() {})
	defer cancelDisk()
	return rep, errors.Join(err, within(disk, o.files.close))
}
