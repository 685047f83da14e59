package loki

import (
	"errors"
	"time"
)

// originalTime is the name of the metadata that contains the original time of a restamped record.
const originalTime = "original_time"

// errOld is the error of the event too-old.
var errOld = errors.New("loki: records that are too old are sent with the current time; the original time is in the metadata " + originalTime)

// oldReportInterval is the shortest interval between two events with errOld.
const oldReportInterval = 10 * time.Minute

// isAgeReason reports whether the reason why refers to the age of a record.
func isAgeReason(why reason) bool { return why == tooOld || why == tooFarBehind }

// isRestamped reports whether record i got the current time in this Send. Such a record does not
// get the current time again, so that a faulty server cannot cause an endless loop.
func (p *push) isRestamped(i int32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.restamped[i]
}

// restamp gives r, which is record i of p, the current time. It adds the original time to the
// metadata. A record keeps its new time when it is sent again. All new times of one client are
// different, so that records with equal contents are both stored. restamp is safe for concurrent
// use with different records.
func (s *client) restamp(p *push, i int32, r *rec, st *stream) {
	key := s.keyOf(st, r)
	at, before := s.moves.find(key)
	if !before {
		now := time.Now().UnixNano()
		for {
			last := s.lastStamp.Load()
			if at = max(now, last+1); s.lastStamp.CompareAndSwap(last, at) {
				break
			}
		}
		s.moves.add(key, at)
		s.observed.inc(restamped)
		if reported := s.lastOldReport.Load(); now-reported >= int64(oldReportInterval) && s.lastOldReport.CompareAndSwap(reported, now) {
			s.reports.Post("too-old", errOld, 0)
		}
	}
	p.remember(i, key)
	p.mu.Lock()
	if p.restamped == nil {
		p.restamped = map[int32]bool{}
	}
	p.restamped[i] = true
	p.mu.Unlock()
	own := label{originalTime, time.Unix(0, r.time).UTC().Format(time.RFC3339Nano)}
	r.data, r.time, r.next = s.rewriteEntry(p.form, r.data, at, []label{own}, !before), at, false
}
