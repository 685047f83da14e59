package slablog

import (
	"context"

	"github.com/forebay-log/forebay/batch"
)

// A log ends in these steps, which the consumer calls:
//
//	Close ─▶ Next, until it has ended or the time is over ─▶ Refuse ─▶ End ─▶ Leave

// Close refuses further writes. Calls that wait for room are still served until [Log.Refuse] or
// [Log.End]. Next leases the remaining records, including those in slabs that are not full.
func (l *Log) Close() {
	point(ptClose)
	s := l.reader.store
	s.lock()
	if s.life == accepting {
		s.life.become(closing)
		s.bell.alarmLocked()
	}
	s.unlock()
	point(ptClosed)
}

// Refuse ends the waiting calls with errClosed. The consumer calls it when the time limit of Close
// has passed.
func (l *Log) Refuse() {
	point(ptRefuse)
	s := l.reader.store
	s.lock()
	s.refuseWaitersLocked()
	s.unlock()
}

// End accounts for the remaining records. The consumer calls it after Close, when everything is
// delivered or the time limit has passed. Records in the crash-safe file stay there for the next
// process, and all other records are dropped. Later results of the consumer do not count. If done
// is true, the consumer no longer uses the log and holds no lease. If done is false, unknown is the
// number of dropped records that the consumer still has and may have delivered. End waits for
// Options.LastResort, at most until ctx ends. Only the first call has an effect.
func (l *Log) End(ctx context.Context, done bool) (unknown uint64) {
	point(ptEnd)
	l.Refuse()
	s := l.reader.store
	_ = s.last.writes.Wait(ctx) // records that LastResort has not written by then are counted below
	s.lock()
	if s.life != closing {
		s.unlock()
		return 0
	}
	s.book.series.End()
	if s.crash.mapped() {
		if err := s.crash.file.Intact(); err != nil {
			s.crash.toHeapLocked(err)
		}
	}
	dropped := s.settleLeftLocked()
	s.book.Dropped[batch.Shutdown] += uint64(s.last.pending)
	s.last.pending = 0
	s.crash.endCrashLocked()
	s.life.become(ended)
	s.unlock()
	s.conf.events.Wait(ctx)
	if done { // the consumer has counted the records that it sent
		return 0
	}
	return uint64(dropped)
}

// Leave releases the memory of the log and the files of dead processes. The consumer calls it once,
// after the last call of Next.
func (l *Log) Leave() {
	s := l.reader.store
	s.found.leave()
	if c := s.crash; c != nil {
		s.lock()
		c.file.Leave()
		s.unlock()
	}
}

// settleLeftLocked accounts for the records that are left at the end; see [Log.End]. Afterwards the
// queue and the leases have no open records, so Settle returns false, and the consumer cannot count
// these records a second time. The result is the number of dropped records that were leased. If the
// consumer still delivers some of the retained records, these arrive twice.
func (s *store) settleLeftLocked() (dropped int) {
	keep := s.crash.mapped()
	if keep {
		s.crash.file.Big.Close() // first, so that no call can add a record after the count
	}
	account := func(open int, pieces []piece) (lost int) {
		if lost = open; keep {
			lost = min(open, s.crash.withoutCopyLocked(pieces))
		}
		s.book.retained += open - lost
		s.book.Dropped[batch.Shutdown] += uint64(lost)
		return lost
	}
	for _, l := range s.leases.list {
		if l.found { // the records of a dead process stay in its file
			s.found.left += l.open
			s.found.cut = s.found.cut || l.open > 0
		} else {
			dropped += account(l.open, l.pieces)
		}
		l.open = 0
	}
	s.leases.list = nil
	s.front.cutLocked()
	account(s.pieces.records, s.pieces.queued)
	s.pieces.remove(len(s.pieces.queued), func(p *piece) bool {
		if !keep {
			s.releaseLocked(p.blk)
		}
		return true
	})
	if s.book.retained > 0 {
		s.crash.sumAllLocked()
	}
	return dropped
}
