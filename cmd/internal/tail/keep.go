package tail

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/internal/vfs"
)

const (
	saveEvery = 100 * time.Millisecond // save earlier after commitBytes were committed
	syncEvery = time.Second
)

// A keeper stores the positions of an index. Its store is nil if positions are not stored.
type keeper struct {
	o          *Options
	index      *index
	store      *store
	urgent     chan struct{} // receives a value when keep must save now
	bytes      atomic.Int64  // bytes committed since the last save
	storeFails bool          // it was reported that positions cannot be stored
}

// committed counts bytes whose position must be stored.
func (k *keeper) committed(n int64) {
	if k.bytes.Add(n) >= commitBytes {
		signal(k.urgent)
	}
}

// save stores the changed positions. It is not safe for concurrent use.
func (k *keeper) save() error {
	if k.store == nil {
		return nil
	}
	k.bytes.Store(0)
	whole := k.store.wantsAll()
	entries := k.index.changes(whole)
	var err error
	switch {
	case whole:
		err = k.store.save(entries)
	case len(entries) > 0:
		err = k.store.append(entries)
	}
	k.reportStore(err)
	return err
}

// keep saves positions until ctx is done.
func (k *keeper) keep(ctx context.Context) {
	var synced time.Time
	var syncDue <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-syncDue:
			k.reportStore(k.store.dir.Sync())
			synced, syncDue = time.Now(), nil
			continue
		case <-k.index.unsavedReady:
		}
		wait := saveEvery
		if k.save() != nil {
			wait = k.o.CommitEvery
			signal(k.index.unsavedReady)
		} else if syncDue == nil {
			syncDue = time.After(time.Until(synced.Add(syncEvery)))
		}
		pause := time.NewTimer(wait)
		urgent := k.urgent
		if wait > saveEvery {
			urgent = nil
		}
		select {
		case <-ctx.Done():
		case <-pause.C:
		case <-urgent:
		}
		pause.Stop()
	}
}

// reportStore reports that positions cannot be stored, or can be stored again. Each change is
// reported once.
func (k *keeper) reportStore(err error) {
	switch {
	case err == nil && k.storeFails:
		k.o.report("positions can be stored again in %s", k.o.Dir)
	case err != nil && !k.storeFails:
		k.o.report("cannot store positions in %s: %s; retrying; if killed now, the next run reads lines again", k.o.Dir, vfs.Cause(err))
	}
	k.storeFails = err != nil
}
