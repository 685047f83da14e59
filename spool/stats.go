package spool

import "time"

// Stats is a snapshot of a spool. Unless stated otherwise, numbers count records since the spool was
// opened; gap markers are not records.
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

	Appended  uint64 // stored
	Batches   uint64 // batches stored
	Recovered uint64 // found at the start, of earlier processes
	Acked     uint64 // settled

	DroppedQuota    uint64 // deleted by "drop-oldest" before they were acknowledged
	DroppedSegments uint64 // files dropped over the quota
	Corrupt         uint64 // counted as appended or recovered, but unreadable later
	Damages         uint64 // times damage was found, each reported to OnEvent ("corrupt")
	AsideFiles      int    // damaged files set aside
	ParkedBytes     int64

	Syncs, SyncErrors uint64 // calls of Sync and background syncs
}
