package tail

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/internal/vfs"
)

const (
	saveEvery = 100 * time.Millisecond // minimum time between two saves, unless commitBytes were committed
	syncEvery = time.Second            // minimum time between two syncs
)

// A keeper stores the positions of an index. store is nil if Options.Dir is empty.
type keeper struct {
	o           *Options
	index       *index
	store       *store
	urgent      chan struct{} // receives a value when keep must save now
	bytes       atomic.Int64  // bytes committed since the last save
	storeFailed bool          // the last save failed and was reported
}

// committed is called after a commit that covered n bytes.
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

// keep saves and syncs positions until ctx is done. It is the goroutine of the keeper.
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

// reportStore reports the result of a save or sync if the previous one had a different result. err
// is nil after a success.
func (k *keeper) reportStore(err error) {
	switch {
	case err == nil && k.storeFailed:
		k.o.report("positions can be stored again in %s", k.o.Dir)
	case err != nil && !k.storeFailed:
		k.o.report("cannot store positions in %s: %s; retrying; if killed now, the next run reads lines again", k.o.Dir, vfs.Cause(err))
	}
	k.storeFailed = err != nil
}
