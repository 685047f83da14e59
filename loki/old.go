package loki

import (
	"errors"
	"time"
)

// originalTime is the metadata with the original time of a record.
const originalTime = "original_time"

var errOld = errors.New("loki: records that are too old are sent with the current time; the original time is in the metadata " + originalTime)

// oldReportInterval is the shortest interval between two such reports.
const oldReportInterval = 10 * time.Minute

// ofAge reports whether the reason is the age of a record.
func ofAge(why reason) bool { return why == tooOld || why == tooFarBehind }

// isStamped reports whether record i has been given the current time.
func (p *push) isStamped(i int32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stamped[i]
}

// restamp gives r, record i of p, the current time. The record keeps it when it is sent again. Times
// are unique and increase.
func (s *client) restamp(p *push, i int32, r *rec, st *stream) {
	key := s.keyOf(st, r)
	at, before := s.moves.find(key)
	if !before {
		now := time.Now().UnixNano()
		for {
			last := s.stamped.Load()
			if at = max(now, last+1); s.stamped.CompareAndSwap(last, at) {
				break
			}
		}
		s.moves.add(key, at)
		s.observed.note(restamped)
		if reported := s.lastOldReport.Load(); now-reported >= int64(oldReportInterval) && s.lastOldReport.CompareAndSwap(reported, now) {
			s.reports.Post("too-old", errOld, 0)
		}
	}
	p.remember(i, key)
	p.mu.Lock()
	if p.stamped == nil {
		p.stamped = map[int32]bool{}
	}
	p.stamped[i] = true
	p.mu.Unlock()
	own := label{originalTime, time.Unix(0, r.time).UTC().Format(time.RFC3339Nano)}
	r.data, r.time, r.next = s.moved(p.form, r.data, at, []label{own}, !before), at, false
}
