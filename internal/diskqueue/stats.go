package diskqueue

import (
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/spool"
)

// Stats returns a consistent snapshot. It never waits for I/O, and works after
// Close.
func (s *Spool) Stats() spool.Stats {
	st, _ := s.queue.stats()
	return st
}

// Account returns the spool's account since Open. Appended records count as accepted, acknowledged
// ones as delivered. Of the pending ones, those that Next has returned are in flight. The account
// balances at every moment.
func (s *Spool) Account() batch.Account {
	st, unread := s.queue.stats()
	a := batch.Account{Accepted: st.Appended, Recovered: st.Recovered, Delivered: st.Acked}
	a.Dropped[batch.Quota] = st.DroppedQuota
	a.Dropped[batch.Corrupt] = st.Corrupt
	a.Pending.Spill, a.Pending.Inflight = unread, st.Records-unread
	return a
}
