package diskqueue

import (
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/spool"
)

// Stats returns a consistent snapshot. It never waits for I/O, and works after
// Close.
func (s *Spool) Stats() spool.Stats {
	st := s.queue.stats()
	st.AppendErrors, st.TornFrames = s.appendErrors.Load(), s.tornFrames
	st.Damages = s.events.damages.Load()
	st.Syncs, st.SyncErrors = s.syncer.count.Load(), s.syncer.failed.Load()
	return st
}

// Account returns the spool's account since Open. Appended records count as accepted,
// acknowledged ones as delivered. It balances at every moment.
func (s *Spool) Account() batch.Account {
	st := s.Stats()
	a := batch.Account{Accepted: st.Appended, Recovered: st.Recovered, Delivered: st.Acked}
	a.Dropped[batch.Quota] = st.DroppedQuota
	a.Dropped[batch.Corrupt] = st.Corrupt
	a.Pending.Spill = st.Records
	return a
}
