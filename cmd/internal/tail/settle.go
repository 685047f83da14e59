package tail

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"
)

const (
	commitBytes = 1 << 20                // bytes after which a commit starts early
	maxCommits  = 8                      // in progress at a time
	saveEvery   = 100 * time.Millisecond // unless commitBytes were committed
	syncEvery   = time.Second
)

// A snapshot holds the positions at which the next process would continue if it started now.
type snapshot struct {
	no    uint64
	bytes int64
	items []item
}

type item struct {
	g *generation
	spot
}

// touch includes the positions of s in the next commit. Only the delivering goroutine calls it.
func (t *Tailer) touch(s *series) {
	if !s.touched {
		s.touched = true
		t.touched = append(t.touched, s)
	}
}

// commit starts a commit if one is due, and returns the time of the next one.
func (t *Tailer) commit(ctx context.Context, now time.Time) time.Time {
	never := now.Add(time.Hour)
	if t.store == nil {
		return never
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.failed {
		t.touch(s)
	}
	t.failed = nil
	if len(t.touched) == 0 || t.commits >= maxCommits {
		return never
	}
	if t.uncommitted < commitBytes && now.Before(t.nextCommit) {
		return t.nextCommit
	}
	t.snapshots++
	shot := snapshot{no: t.snapshots, bytes: t.uncommitted}
	for _, s := range t.touched {
		s.touched = false
		for _, g := range s.gens {
			if at := s.spot(g); at != g.snapped && g.state != skipped {
				g.snapped = at
				shot.items = append(shot.items, item{g, at})
			}
		}
	}
	t.touched, t.uncommitted, t.nextCommit = t.touched[:0], 0, now.Add(t.o.CommitEvery)
	if len(shot.items) == 0 {
		return never
	}
	t.commits++
	t.background.Go(func() { t.settle(shot, t.sink.Commit(ctx)) })
	return never
}

// settle applies the outcome of a commit.
func (t *Tailer) settle(shot snapshot, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.commits--
	signal(t.ready) // another commit may start, or this one be repeated
	for _, i := range shot.items {
		switch g := i.g; {
		case err != nil:
			g.snapped = spot{mark: mark{off: -1}}
			t.failed = append(t.failed, g.s)
		case g.sure < shot.no && !g.dropped:
			g.sure, g.settled = shot.no, i.spot
			if i.ended {
				t.drop(g)
			}
			t.unsave(g)
		}
	}
	if err == nil {
		if t.settledBytes += shot.bytes; t.settledBytes >= commitBytes {
			signal(t.urgent)
		}
	}
}

// drop removes g from the generations of its path. The caller holds mu.
func (t *Tailer) drop(g *generation) {
	g.dropped = true
	t.shut(g)
	if t.reals[g.real] == g.s {
		delete(t.reals, g.real)
	}
	g.s.gens = slices.DeleteFunc(g.s.gens, func(o *generation) bool { return o == g })
	t.queue(g.s) // it may be the last one
}

// forget forgets s if nothing is left of it.
func (t *Tailer) forget(s *series) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(s.gens) == 0 && s.hold == nil && s.rest.kind != carried && t.paths[s.path] == s {
		delete(t.paths, s.path)
		t.list = slices.DeleteFunc(t.list, func(o *series) bool { return o == s })
	}
}

// unsave has the position of g stored. The caller holds mu.
func (t *Tailer) unsave(g *generation) {
	if t.store == nil || g.unsaved {
		return
	}
	g.unsaved = true
	t.unsaved = append(t.unsaved, g)
	signal(t.news)
}

// save stores the changes. It is not for concurrent use.
func (t *Tailer) save() error {
	if t.store == nil {
		return nil
	}
	t.mu.Lock()
	changed := t.unsaved
	t.unsaved, t.settledBytes = nil, 0
	var entries []entry
	whole := t.store.wantsWhole()
	for _, g := range changed {
		g.unsaved = false
		if !whole {
			entries = append(entries, g.entry())
			entries[len(entries)-1].ended = g.dropped
		}
	}
	if whole {
		entries = t.entriesLocked()
	}
	t.mu.Unlock()
	var err error
	switch {
	case whole:
		err = t.store.save(entries)
	case len(entries) > 0:
		err = t.store.append(entries)
	}
	t.reportStore(err)
	return err
}

// entriesLocked returns the entries to store.
func (t *Tailer) entriesLocked() []entry {
	entries := slices.Clone(t.parked)
	all := make([]*generation, 0, len(t.list))
	for _, s := range t.list {
		all = append(all, s.gens...)
	}
	slices.SortFunc(all, func(a, b *generation) int { return int(int64(a.order) - int64(b.order)) })
	for _, g := range all {
		if g.state != skipped {
			entries = append(entries, g.entry())
		}
	}
	return entries
}

// keep saves until ctx ends.
func (t *Tailer) keep(ctx context.Context) {
	var synced time.Time
	var syncDue <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-syncDue:
			t.reportStore(t.store.dir.Sync())
			synced, syncDue = time.Now(), nil
			continue
		case <-t.news:
		}
		wait := saveEvery
		if t.save() != nil {
			wait = t.o.CommitEvery
			signal(t.news)
		} else if syncDue == nil {
			syncDue = time.After(time.Until(synced.Add(syncEvery)))
		}
		pause := time.NewTimer(wait)
		urgent := t.urgent
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
func (t *Tailer) reportStore(err error) {
	switch {
	case err == nil && t.trouble:
		t.report("positions can be stored again in %s", t.o.Dir)
	case err != nil && !t.trouble:
		t.report("cannot store positions in %s: %s; retrying; if killed now, the next run reads lines again", t.o.Dir, plain(err))
	}
	t.trouble = err != nil
}

// plain is err without a path, which the message has already.
func plain(err error) error {
	if pe := (*os.PathError)(nil); errors.As(err, &pe) {
		return pe.Err
	}
	if le := (*os.LinkError)(nil); errors.As(err, &le) {
		return le.Err
	}
	return err
}
