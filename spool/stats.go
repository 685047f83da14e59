package spool

import "time"

// Stats is a snapshot of a spool. Unless stated otherwise, numbers count records since the spool
// was opened; gap markers, which report drops, are not counted.
type Stats struct {
	Records  uint64 // records that are not acknowledged, counted by walking the segments
	Bytes    int64  // size on disk, including parked and damaged files
	MaxBytes int64  // the quota
	Segments int    // number of segment files, including parked ones
	// Oldest is the time since which the oldest segment has continuously had unacknowledged
	// records. Parked segments do not count. Zero: no records are pending.
	Oldest time.Time

	Parked      uint64 // number of Records in a form that Options.Accepts refuses
	ParkedFiles int    // number of segments with such records

	Appended  uint64 // records stored by Append
	Batches   uint64 // batches stored by Append
	Recovered uint64 // records of earlier processes found at the start
	Acked     uint64 // records that were acknowledged

	DroppedQuota    uint64 // deleted by "drop-oldest" before they were acknowledged
	DroppedSegments uint64 // files deleted over the quota
	Corrupt         uint64 // records counted as appended or recovered that turned out to be unreadable
	Damages         uint64 // times damage was found, each reported to OnEvent ("corrupt")
	AsideFiles      int    // damaged files that were set aside
	ParkedBytes     int64

	Syncs, SyncErrors uint64 // number of syncs, by calls of Sync and in the background
}
