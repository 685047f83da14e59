package spool

import (
	"time"

	"github.com/forebay-log/forebay/batch"
)

// Stats is a snapshot of a [Spool]. Unless stated otherwise, numbers count records since Open; gap
// markers are not records.
type Stats struct {
	Records  uint64 // not acknowledged, counted by walking the segments
	Bytes    int64  // on disk, parked and damaged files included
	MaxBytes int64  // the quota
	Segments int    // files that are in use, parked ones included
	// Oldest is the start of the current, uninterrupted period in which the oldest segment has had
	// unacknowledged records. Parked segments do not count. Zero: no records are pending.
	Oldest time.Time

	Parked      uint64 // of Records, those in a form that Options.Accepts refuses
	ParkedFiles int    // segments with such records

	Appended     uint64 // stored by Append
	Batches      uint64 // batches stored by Append
	AppendErrors uint64 // calls of Append that failed, except those after Close
	Recovered    uint64 // found by Open, of earlier processes
	TornFrames   uint64 // found by Open: an Append that did not return
	Acked        uint64 // settled by Ack

	DroppedQuota    uint64 // deleted by "drop-oldest" before they were acknowledged
	DroppedSegments uint64 // files dropped over the quota
	Corrupt         uint64 // counted as appended or recovered, but unreadable later
	Damages         uint64 // times damage was found, by Open or later, each reported to OnEvent ("corrupt")
	AsideFiles      int    // damaged files set aside
	AsideBytes      int64

	Syncs, SyncErrors uint64 // calls of Sync and background syncs
}

// Stats returns a consistent snapshot. It never waits for I/O, and works after
// Close.
func (s *Spool) Stats() Stats {
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
