package slab

import "github.com/forebay-log/forebay/internal/crashfile"

// CrashRecovery counts what a Writer found in the files of dead processes.
type CrashRecovery struct {
	Files        uint64
	Records      uint64 // to be delivered, Oversize included
	Oversize     uint64 // larger than a slab
	Evicted      uint64 // dropped by DropOldest while the process lived
	HeapOnly     uint64 // larger than a slab, and only in the memory of the process: lost
	Unreturned   uint64 // their calls had not returned
	Damaged      uint64 // counted as recovered, and as dropped{corrupt}
	Undefined    uint64 // of streams that are not defined, likewise; not part of Records
	Held         uint64 // left out, because the borrower has them: see [Borrower]; not part of Records
	DamagedFiles uint64 // renamed aside
	MovedToHeap  uint64 // files whose process went on without them
	OtherBoot    uint64 // files from before the machine was started
}

func (r *CrashRecovery) add(im *crashfile.Image) {
	r.Files++
	r.Records += uint64(len(im.Records))
	r.Oversize += im.Oversize
	r.Evicted += im.Evicted
	r.HeapOnly += im.HeapOnly
	r.Unreturned += im.Unreturned
	r.Damaged += im.Damaged
	if im.MovedToHeap {
		r.MovedToHeap++
	}
	if im.OtherBoot {
		r.OtherBoot++
	}
}
