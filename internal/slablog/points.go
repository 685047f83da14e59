package slablog

// Test points are the steps of callers and consumer at which a test may delay a goroutine. Without
// the build tag forebay_points, point is an empty function that the compiler inlines, so a point
// produces no code.
//
// A point whose name ends in Locked is reached with store.mu or front.mu held. A test may spin or
// yield there, but must not sleep.
const (
	// A write.
	ptPut          = "put"          // before the lock
	ptCopiedLocked = "copiedLocked" // payload and slot are stored, the ticket is not
	ptStoredLocked = "storedLocked" // the ticket is stored
	ptReturn       = "return"       // after the lock
	ptSlowLocked   = "slowLocked"   // the fast path is impossible
	ptOpenLocked   = "openLocked"   // a new slab is needed
	ptSealLocked   = "sealLocked"   // the current slab is about to be retired

	// A record that fits no slab.
	ptOversizeCopy         = "oversizeCopy"         // budget reserved, lock released
	ptOversizeCopied       = "oversizeCopied"       // copied, before the lock
	ptOversizeStoredLocked = "oversizeStoredLocked" // queued

	// A blocked write.
	ptWait         = "wait"         // queued, before it waits
	ptWoken        = "woken"        // answered or timed out, before the lock
	ptServeLocked  = "serveLocked"  // before waiting records are placed
	ptAnswerLocked = "answerLocked" // a waiting record is placed or refused

	// DropOldest.
	ptEvictLocked = "evictLocked" // before a slab is dropped

	// The consumer.
	ptGather     = "gather"     // before the lock
	ptTakeLocked = "takeLocked" // a batch is about to be taken
	ptTaken      = "taken"      // the batch is taken
	ptSleep      = "sleep"      // before it sleeps
	ptSpin       = "spin"       // lock released, before it looks for a slab
	ptRefuse     = "refuse"     // Close has run out of time

	// Flush and Close.
	ptFlush  = "flush"  // before the lock
	ptClose  = "close"  // before the lock
	ptClosed = "closed" // further writes are refused
	ptEnd    = "end"    // before the final account

	// Crash-safe slabs: the files of this process and of dead ones. More are in
	// internal/crashfile.
	ptBigKeep        = "bigKeep"        // an oversize record is queued, nothing of it is on disk
	ptBigNotedLocked = "bigNotedLocked" // from here on, recovery reports the record if it is missing
	ptAckLocked      = "ackLocked"      // before progress is stored
	ptAckedLocked    = "ackedLocked"    // after progress is stored, before the memory is free
	ptRewindLocked   = "rewindLocked"   // before a slab is used again
	ptRewoundLocked  = "rewoundLocked"  // after it
	ptSum            = "sum"            // before the checksum of a sealed slab
	ptSummed         = "summed"         // after it
	ptAdopt          = "adopt"          // the file of a dead process is locked and read
	ptRecover        = "recover"        // before the next records of such a file are leased
)
