package slablog

import (
	"crypto/rand"
	"errors"
	"log/slog"
	"runtime"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/callback"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/slab"
)

// A Writer collects records in slabs, which its [Log] passes to one consumer. All methods may be
// called from any goroutine, including during and after Close.
//
// A call costs a lock and a copy. A destination that stalls, fails, panics or hangs affects callers
// only through the when-full policy, when all slabs are in use.
type Writer struct {
	front front // by value, so its fields are in the cache line of the Writer
	store *store
	conf  *config
}

// New returns a Writer, and the Log from which its consumer reads the records. deliver.NewOutput
// makes both for a destination. The error names every option that is out of range. New starts no
// goroutine. At the end, the consumer calls [Log.Close], [Log.End] and [Log.Leave].
func New(o *slab.Options, c Consumer) (*Writer, *Log, error) {
	if o == nil {
		o = &slab.Options{}
	}
	r, err := Resolve(*o)
	if err != nil {
		return nil, nil, err
	}
	if r.OnError == nil {
		r.OnError = callback.ToStderr[batch.Event]
	}
	w := &Writer{
		conf: &config{
			o: r, usual: policyOf(r.WhenFull), onImportant: policyOf(r.ImportantWhenFull),
			consumer: c, born: time.Now(),
		},
		store: new(store),
	}
	var errs [3]error
	w.conf.flush, errs[0] = levelVar("FlushLevel", r.FlushLevel, slog.LevelError)
	w.conf.reserve, errs[1] = levelVar("ReserveLevel", r.ReserveLevel, slog.LevelInfo)
	w.conf.important, errs[2] = levelVar("ImportantLevel", r.ImportantLevel, slog.LevelError)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, nil, err
	}
	if w.conf.spills() && !c.Spills {
		return nil, nil, errors.New("slab: Options.WhenFull is spill, but the consumer has no disk to move records to")
	}
	w.conf.events.SetOutput(r.Name, r.OnError)
	_, _ = rand.Read(w.conf.id[:]) // never fails
	w.front = front{conf: w.conf, store: w.store, flush: w.conf.flush, end: noEnd, spins: runtime.GOMAXPROCS(0) > 1}
	w.store.init(w.conf, &w.front)
	w.store.last.writes = callback.New(w.writeLastResort, lastResortQueue+1)
	if err := w.openSlabs(c.Dictionary, c.Held); err != nil {
		return nil, nil, err
	}
	l := new(Log)
	l.reader.init(w.conf, w.store)
	return w, l, nil
}

// Write accepts p as one record of unknown time at slog.LevelInfo. It copies p. It returns len(p)
// and nil even for a record that the when-full policy dropped, because the caller has chosen that
// policy; the drop is counted. The error is [slab.ErrOversize] for a record larger than MaxRecord,
// and wraps [batch.ErrClosed] after Close.
func (w *Writer) Write(p []byte) (int, error) {
	point(ptPut)
	var err error
	var m batch.Meta
	if w.front.checks {
		if w.front.storeMapped(p, m) {
			return len(p), nil
		}
		err = w.WriteRecord(p, m)
	} else { // WriteRecord, inlined, because a call would add a tenth to the cost
		if !w.front.mu.TryLock() { // front.lock, by hand, because the compiler does not inline it
			w.front.wait()
		}
		if w.front.fits(len(p)) && m.Level < w.front.flush.Level() {
			w.front.storeFast(p, uint64(m.Time), tail(m))
			w.front.mu.Unlock()
			point(ptReturn)
			return len(p), nil
		}
		err = w.putSlow(p, m)
	}
	// An oversize record is an error even though it is dropped and counted, because no policy could
	// have accepted it.
	if err != nil && (!errors.Is(err, slab.ErrDropped) || errors.Is(err, slab.ErrOversize)) {
		return 0, err
	}
	return len(p), nil
}

// WriteRecord accepts p as one record. It copies p. For a record that was dropped and counted, the
// error wraps [slab.ErrDropped]. After Close, it wraps [batch.ErrClosed].
func (w *Writer) WriteRecord(p []byte, m batch.Meta) error {
	point(ptPut)
	if w.front.checks {
		if w.front.storeMapped(p, m) {
			return nil
		}
		if len(p) > w.conf.o.MaxRecord {
			return w.Refuse(batch.Oversize)
		}
		if w.store.crash != nil {
			return w.putMapped(p, m)
		}
	}
	if !w.front.mu.TryLock() { // front.lock, by hand
		w.front.wait()
	}
	if !w.front.fits(len(p)) || m.Level >= w.front.flush.Level() {
		return w.putSlow(p, m)
	}
	w.front.storeFast(p, uint64(m.Time), tail(m))
	w.front.mu.Unlock()
	point(ptReturn)
	return nil
}

// putSlow implements WriteRecord without the fast path. front.mu is held on entry, and putSlow
// releases it.
func (w *Writer) putSlow(p []byte, m batch.Meta) error {
	w.front.closeLocked()
	w.store.mu.Lock()
	return w.putSlowLocked(p, m)
}

// putSlowLocked implements putSlow. mu is held on entry. A record that is not accepted is counted
// with the first reason that applies: the Writer is closed, the record is too large, or memory is
// full.
func (w *Writer) putSlowLocked(p []byte, m batch.Meta) error {
	defer w.store.unlock()
	point(ptSlowLocked)
	if w.store.life != accepting {
		w.store.book.refused++
		return errClosed
	}
	if len(p) > w.conf.o.MaxRecord {
		return w.store.dropLocked(batch.Oversize)
	}
	if len(p)+layout.SlotBytes > w.conf.o.SlabBytes {
		return w.putOversizeLocked(p, m)
	}
	// Waiting calls are served in order. Only a record that evicts the oldest slab may precede
	// them. Its call began before the waiting calls returned, so the order is still right.
	if (w.store.callers.slabs.n == 0 || w.conf.policyFor(m.Level).evicts) && w.front.placeLocked(p, m) {
		if w.store.callers.waitingLocked() > 0 { // dropping may have freed more room than this record uses
			w.front.serveLocked()
		}
		return nil
	}
	return w.fullLocked(p, m, &w.store.callers.slabs)
}

// Codec returns Options.Codec.
func (w *Writer) Codec() batch.Codec { return w.conf.o.Codec }
