package tail

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/internal/vfs"
)

const (
	saveEvery = 100 * time.Millisecond // unless commitBytes were committed
	syncEvery = time.Second
)

// A keeper stores the positions of an index. If none are stored, its store is nil.
type keeper struct {
	o       *Options
	index   *index
	store   *store
	urgent  chan struct{} // has a token: keep does not wait any longer
	bytes   atomic.Int64  // committed since the last save
	trouble bool          // it was reported that positions cannot be stored
}

// committed counts bytes whose position has to be stored.
func (k *keeper) committed(n int64) {
	if k.bytes.Add(n) >= commitBytes {
		signal(k.urgent)
	}
}

// save stores the changes. It is not for concurrent use.
func (k *keeper) save() error {
	if k.store == nil {
		return nil
	}
	k.bytes.Store(0)
	whole := k.store.wantsWhole()
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

// keep saves until ctx ends.
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
		case <-k.index.news:
		}
		wait := saveEvery
		if k.save() != nil {
			wait = k.o.CommitEvery
			signal(k.index.news)
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

// reportStore reports once that positions cannot be stored, and once that they can be stored again.
func (k *keeper) reportStore(err error) {
	switch {
	case err == nil && k.trouble:
		k.o.report("positions can be stored again in %s", k.o.Dir)
	case err != nil && !k.trouble:
		k.o.report("cannot store positions in %s: %s; retrying; if killed now, the next run reads lines again", k.o.Dir, vfs.Cause(err))
	}
	k.trouble = err != nil
}
