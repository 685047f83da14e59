package forebay

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/forebay-log/forebay/batch"
)

var (
	errClosed = fmt.Errorf("forebay: %w", batch.ErrClosed)
	// errBusy is returned for a record that a direct output skipped because an earlier
	// write has not returned. The record is counted as dropped{busy}.
	errBusy = errors.New("forebay: output is stuck in an earlier write")

	errNoProgress = errors.New("forebay: output accepted no bytes and reported no error")
	errBadCount   = errors.New("forebay: output reports an impossible number of bytes written")
	errGoexit     = errors.New("runtime.Goexit was called")
)

// panicError is an error that wraps the value of a panic.
type panicError struct{ value any }

// Error returns "panic: " followed by the value of the panic as text. If a method of the value
// panics in turn, the text describes that panic.
func (e panicError) Error() string { return "panic: " + describe(e.value) }

// describe formats v. If a method of v panics, fmt recovers the panic and describes it in the text.
func describe(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return fmt.Sprint(v)
}

// unwound returns the error for a function that panicked or called runtime.Goexit. p is the result
// of recover, which is nil after runtime.Goexit.
func unwound(p any) error {
	if p == nil {
		return errGoexit
	}
	return panicError{p}
}

// A tally counts the records and the rare events of one output.
type tally struct {
	encode  atomic.Uint64 // dropped because the encoder failed
	sampled atomic.Uint64 // dropped by the option Sample
	refused atomic.Uint64 // arrived after Close; not part of the account
	panics  atomic.Uint64 // failed writes that panicked or called runtime.Goexit
	errors  atomic.Uint64 // writes that returned an error, even if a second write completed the record

	mu   sync.Mutex // guards the fields below; no other lock is acquired while it is held
	last error
	// records counts the records of outputs that share their writer, and of buffered outputs whose
	// writer keeps no account. The gate counts those of other direct outputs.
	records batch.Account
}

// accept counts a record as accepted and pending.
func (t *tally) accept() {
	t.mu.Lock()
	t.records.Accepted++
	t.records.Pending.Inflight++
	t.mu.Unlock()
}

// settle counts a record, which accept has counted as pending, as delivered or dropped. err is the
// result of its write. If the output is closed, the record no longer counts as accepted.
func (t *tally) settle(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.records.Pending.Inflight--
	switch err {
	case nil:
		t.records.Delivered++
	case errBusy:
		t.records.Dropped[batch.Busy]++
	case errClosed:
		t.records.Accepted--
	default:
		t.records.Dropped[batch.Failed]++
	}
}

// fail counts err and keeps it as the last error.
func (t *tally) fail(err error) {
	t.errors.Add(1)
	t.setLast(err)
}

// setLast keeps err as the last error without counting it.
func (t *tally) setLast(err error) {
	t.mu.Lock()
	t.last = err
	t.mu.Unlock()
}

// lastError returns the last error, or nil.
func (t *tally) lastError() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

// A direct is a writer to which callers write in their own goroutines, with one Write per record. A
// [gate] serializes the writes. Outputs with the same writer share the direct.
type direct struct {
	gate
	w      io.Writer
	name   string // name of the first output with this writer
	events *reporter

	// trouble is true if torn is true or failing is not 0. These three fields are guarded by the
	// gate.
	trouble bool
	// torn is set if only part of the last record was written. The next write then begins with a
	// newline, so that it starts a new line.
	torn    bool
	failing uint64 // failures since the last success

	// failedAt is the time of the first failure since the last success. stuckAt is the time at
	// which the current write was found stuck. Both are Unix times in nanoseconds, and 0 means
	// none.
	failedAt, stuckAt atomic.Int64

	skipped atomic.Uint64 // number of records skipped since the current write was found stuck
}

// newDirect returns a direct for w. A Write that takes longer than busy counts as stuck.
func newDirect(w io.Writer, name string, busy time.Duration, events *reporter) *direct {
	d := &direct{w: w, name: name, events: events}
	d.gate.init(busy)
	d.onStuck = func() {
		d.stuckAt.Store(time.Now().UnixNano())
		d.events.post(batch.Event{Output: d.name, Op: "drop", Err: errBusy})
	}
	d.onFree = func() {
		d.stuckAt.Store(0)
		d.events.post(batch.Event{Output: d.name, Op: "recovered", Count: d.skipped.Swap(0)})
	}
	return d
}

// troubleSince returns the time of the first failure since the last success, or the time at which
// the current write was found stuck, whichever is earlier. It returns the zero time if there is
// neither.
func (d *direct) troubleSince() time.Time {
	at := d.failedAt.Load()
	if stuck := d.stuckAt.Load(); at == 0 || stuck != 0 && stuck < at {
		at = stuck
	}
	if at == 0 {
		return time.Time{}
	}
	return time.Unix(0, at)
}

// write writes one record to the writer. A failure is counted in t. If the writer panics or calls
// runtime.Goexit, the caller must call [direct.abandon] to unlock the gate.
func (d *direct) write(p []byte, t *tally) error {
	if !d.tryLock() {
		switch d.lock() {
		case turnedAway:
			d.skipped.Add(1)
			return errBusy
		case foundClosed:
			t.refused.Add(1)
			return errClosed
		}
	}
	if d.trouble {
		return d.writeAfterFailure(p, t)
	}
	n, err := d.w.Write(p)
	if n == len(p) && err == nil {
		d.unlock()
		return nil
	}
	return d.finish(p, p, n, err, t)
}

// writeAfterFailure implements write for a record after a failure. The caller holds the gate.
func (d *direct) writeAfterFailure(p []byte, t *tally) error {
	q := p
	if d.torn {
		// The newline ends the torn record, so that the next record is not damaged. Both are
		// written with one Write, because other processes may write to the same file.
		q = append(append(make([]byte, 0, len(p)+1), '\n'), p...)
	}
	n, err := d.w.Write(q)
	return d.finish(p, q, n, err, t)
}

// finish handles the result (n, err) of a Write of q. q is p, or a newline followed by p. finish
// writes the missing bytes and unlocks the gate.
func (d *direct) finish(p, q []byte, n int, err error, t *tally) error {
	var (
		done    = 0
		unknown = false // the number of written bytes is unknown
		zeros   = 0
		retried = false
		start   time.Time // time of the first EAGAIN
		pause   = time.Millisecond
	)
	for {
		if n < 0 || n > len(q)-done {
			n, err, unknown = 0, errBadCount, true
		}
		done += n
		if done == len(q) {
			break
		}
		switch {
		case err == nil && n == 0:
			if zeros++; zeros == 3 {
				err = errNoProgress
			}
		case err == nil || errors.Is(err, io.ErrShortWrite) && n > 0:
			zeros, err = 0, nil
		case errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR):
			// The descriptor has O_NONBLOCK, perhaps inherited from the parent process. The
			// kernel's buffer usually has space again soon. After BusyTimeout the write counts as
			// failed.
			if start.IsZero() {
				start = time.Now()
			}
			if time.Since(start)+pause <= d.busy {
				time.Sleep(pause)
				pause = min(2*pause, 20*time.Millisecond)
				err = nil
			}
		case done > 0 && !retried && !unknown:
			// Part of the record has been written. Without a second attempt the record would be
			// torn.
			retried = true
			t.fail(err)
			err = nil
		}
		if err != nil {
			break
		}
		n, err = d.w.Write(q[done:])
	}
	skip := len(q) - len(p) // 1 if q begins with a newline
	if done < len(q) {
		d.torn = d.torn && done == 0 || (done > skip || unknown) && lineBased(p)
		d.fail(err, t, "write")
		d.unlockFailed()
		return err
	}
	d.torn = false
	if err != nil { // the writer returned an error although all bytes are written
		d.fail(err, t, "write")
		d.unlock()
		return nil
	}
	failures := d.failing
	d.failing, d.trouble = 0, false
	d.failedAt.Store(0)
	d.unlock()
	if failures > 0 {
		d.events.post(batch.Event{Output: d.name, Op: "recovered", Count: failures})
	}
	return nil
}

// fail counts a failure, and reports it if it is the first since the last success. The caller holds
// the gate.
func (d *direct) fail(err error, t *tally, op string) {
	t.fail(err)
	d.trouble = true
	if d.failing++; d.failing == 1 {
		d.failedAt.Store(time.Now().UnixNano())
		d.events.post(batch.Event{Output: d.name, Op: op, Err: err, Count: 1})
	}
}

// abandon unlocks the gate after a write of p that panicked or called runtime.Goexit. It assumes
// that a part of p was written. recovered is the result of recover.
func (d *direct) abandon(p []byte, t *tally, recovered any) error {
	err := unwound(recovered)
	d.torn = lineBased(p)
	d.fail(err, t, "panic")
	d.unlockFailed()
	t.panics.Add(1)
	return err
}

// lineBased reports whether the record ends with a newline. After part of such a record has been
// written, a newline ends the broken line, so that the next record is on a separate line.
func lineBased(p []byte) bool { return len(p) > 0 && p[len(p)-1] == '\n' }
