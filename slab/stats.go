package slab

import (
	"time"

	"github.com/forebay-log/forebay/batch"
)

// Stats is a snapshot of the memory of an output.
type Stats struct {
	Name string
	batch.Account
	Refused     uint64 // writes after Close, answered with batch.ErrClosed; not part of the account
	SlabCount   int
	SlabBytes   int
	SlabsInUse  int // including slabs in delivery, and slabs whose memory is used by larger records (OversizeMem)
	OversizeMem int // bytes held by records larger than a slab; part of SlabCount × SlabBytes
	Room        int // bytes that are free, slots included
	Waiting     int // callers blocked in a write
	// Waits is the number of writes that have waited for memory, and WaitTime their total waiting
	// time. Writes still counted in Waiting are not included.
	Waits    uint64
	WaitTime time.Duration
	// Rate is the number of accepted bytes per second, including 32 bytes of bookkeeping per
	// record, averaged over the last seconds. BurstLeft is the time until the free slabs are full
	// at that rate if the destination accepts nothing (at most a day; 0 while writes wait or are
	// dropped).
	Rate      float64
	BurstLeft time.Duration
	// OldestAge is the age of the oldest undelivered record, measured from the time of the record
	// or, if it has none, from its acceptance. It may be slightly too large, because slabs in
	// delivery count until all their records are settled. 0 if nothing is pending in memory;
	// records in the spool are not considered.
	OldestAge time.Duration
	// OldestWait is the time since the record of OldestAge was accepted. It may also be slightly
	// too large.
	OldestWait time.Duration
	// CrashUnsafe is the reason why the slabs are on the heap although Options.Crash is set, or ""
	// if they are not. HeapOnly is the number of pending oversize records that have no copy outside
	// this process.
	CrashUnsafe string
	HeapOnly    int
	// Recovery counts the records found in the files of dead processes.
	Recovery CrashRecovery
}
