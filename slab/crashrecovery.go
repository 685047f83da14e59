package slab

// CrashRecovery counts the files of dead processes and the records found in them.
type CrashRecovery struct {
	Files        uint64
	Records      uint64 // records to be delivered, including Oversize
	Oversize     uint64 // larger than a slab
	Evicted      uint64 // dropped by DropOldest while the process was running
	HeapOnly     uint64 // lost: larger than a slab, and only in the memory of the process
	Unreturned   uint64 // records of writes that had not returned
	Damaged      uint64 // counted as recovered, and as dropped{corrupt}
	Undefined    uint64 // of undefined streams; counted like Damaged; not part of Records
	Held         uint64 // skipped, because they are in the spool; not part of Records
	DamagedFiles uint64 // renamed and not used
	MovedToHeap  uint64 // files whose process replaced them by heap slabs
	OtherBoot    uint64 // files from before the last boot
}
