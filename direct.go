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

// Error formats the value and contains panics of its methods.
func (e panicError) Error() string { return "panic: " + describe(e.value) }

// describe formats v; fmt contains panics of v's own methods.
func describe(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return fmt.Sprint(v)
}

// unwound converts p, the result of recover in a function that did not return normally, to an
// error.
func unwound(p any) error {
	if p == nil {
		return errGoexit
	}
	return panicError{p}
}

// tally counts the events of one output that are rare enough for atomics.
type tally struct {
	encode  atomic.Uint64 // dropped: the encoder failed
	sampled atomic.Uint64 // dropped: left out by Sample
	busy    atomic.Uint64 // dropped: the writer is stuck
	failed  atomic.Uint64 // dropped: the writer failed
	refused atomic.Uint64 // came after Close; not part of the account
	panics  atomic.Uint64 // the part of failed that panicked or called Goexit
	errors  atomic.Uint64 // writes that returned an error, dropped or not

	mu   sync.Mutex // guards last, and is a leaf lock
	last error

	// For outputs that share their writer, and for buffered ones without an
	// account.
	accepted  atomic.Uint64
	delivered atomic.Uint64
}

func (t *tally) fail(err error) {
	t.errors.Add(1)
	t.note(err)
}

func (t *tally) note(err error) {
	t.mu.Lock()
	t.last = err
	t.mu.Unlock()
}

func (t *tally) lastError() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

// direct is a writer to which the calling goroutine writes records, one Write each, under a
// [gate]. Outputs with the same writer share it.
type direct struct {
	gate
	w      io.Writer
	name   string // of the first output with this writer
	events *reporter

	// trouble reports whether one of the fields below is set. The gate guards all of them.
	trouble bool
	torn    bool   // the last record was written in part: begin with a newline
	failing uint64 // failures since the last success

	failedAt, stuckAt atomic.Int64 // Unix ns since the destination fails or hangs; 0 while it does not

	turned atomic.Uint64 // turned away since the writer was last stuck
}

func newDirect(w io.Writer, name string, busy time.Duration, events *reporter) *direct {
	d := &direct{w: w, name: name, events: events}
	d.gate.init(busy)
	d.onStuck = func() {
		d.stuckAt.Store(time.Now().UnixNano())
		d.events.post(batch.Event{Output: d.name, Op: "drop", Err: errBusy})
	}
	d.onFree = func() {
		d.stuckAt.Store(0)
		d.events.post(batch.Event{Output: d.name, Op: "recovered", Count: d.turned.Swap(0)})
	}
	return d
}

// troubleSince returns the time since which writes fail or one is stuck, or the zero time.
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

// write passes one record to the writer and counts a failure in t.
//
// The writer may panic or call runtime.Goexit. The caller must then call [direct.abandon].
func (d *direct) write(p []byte, t *tally) error {
	if !d.tryLock() {
		switch d.lock() {
		case turnedAway:
			d.turned.Add(1)
			t.busy.Add(1)
			return errBusy
		case foundClosed:
			t.refused.Add(1)
			return errClosed
		}
	}
	if d.trouble {
		return d.settle(p, t)
	}
	n, err := d.w.Write(p)
	if n == len(p) && err == nil {
		d.unlock()
		return nil
	}
	return d.finish(p, p, n, err, t)
}

// settle writes p after a failure.
func (d *direct) settle(p []byte, t *tally) error {
	q := p
	if d.torn {
		// Only the record that was torn is damaged, not the one that follows. In
		// one Write, because others may write to the same file.
		q = append(append(make([]byte, 0, len(p)+1), '\n'), p...)
	}
	n, err := d.w.Write(q)
	return d.finish(p, q, n, err, t)
}

// finish processes the result of a Write of q, which is p or p after a newline. It writes the
// missing bytes and ends the section.
func (d *direct) finish(p, q []byte, n int, err error, t *tally) error {
	var (
		done    = 0
		unknown = false // the number of written bytes is unknown
		zeros   = 0
		retried = false
		start   time.Time // of the waiting
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
			// An inherited O_NONBLOCK: there is room again soon, or the writer is as
			// good as stuck.
			if start.IsZero() {
				start = time.Now()
			}
			if time.Since(start)+pause <= d.busy {
				time.Sleep(pause)
				pause = min(2*pause, 20*time.Millisecond)
				err = nil
			}
		case done > 0 && !retried && !unknown:
			// The alternative is a torn record: retry.
			retried = true
			t.fail(err)
			err = nil
		}
		if err != nil {
			break
		}
		n, err = d.w.Write(q[done:])
	}
	skip := len(q) - len(p) // 1 if there was a newline to write first
	if done < len(q) {
		d.torn = d.torn && done == 0 || (done > skip || unknown) && lineBased(p)
		d.fail(err, t, "write")
		d.unlock()
		t.failed.Add(1)
		return err
	}
	d.torn = false
	if err != nil { // error although all bytes were written
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

// fail counts a failure, and reports it if it is the first since a success.
func (d *direct) fail(err error, t *tally, op string) {
	t.fail(err)
	d.trouble = true
	if d.failing++; d.failing == 1 {
		d.failedAt.Store(time.Now().UnixNano())
		d.events.post(batch.Event{Output: d.name, Op: op, Err: err, Count: 1})
	}
}

// abandon ends the section of a write that did not return. The number of bytes of p that
// were written is unknown.
func (d *direct) abandon(p []byte, t *tally, recovered any) error {
	err := unwound(recovered)
	d.torn = lineBased(p)
	d.fail(err, t, "panic")
	d.unlock()
	t.failed.Add(1)
	t.panics.Add(1)
	return err
}

// lineBased reports whether the record ends with a newline. In that case an additional newline
// is harmless and terminates a torn record.
func lineBased(p []byte) bool { return len(p) > 0 && p[len(p)-1] == '\n' }
