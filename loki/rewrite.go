package loki

import (
	"errors"
	"hash/maphash"
	"time"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// move moves the entries of a segment to a spare stream, because Loki does not accept their own
// stream: there are too many streams, or its labels are refused. Labels that the spare stream does
// not have with the same value become metadata.
//
// The spare stream may receive records of several streams. Therefore, with Config.UniqueTimes, the
// entries get times that are unused in the spare stream, and the segment is sorted again.
func (s *client) move(p *push, seg *segment, spare *stream) {
	var lost []label
	kept := map[string]string{}
	eachLabel(spare.labels, func(name []byte, value string) { kept[string(name)] = value })
	eachLabel(seg.st.labels, func(name []byte, value string) {
		if kept[string(name)] != value {
			lost = append(lost, label{string(metaName(string(name))), value})
		}
	})
	for _, i := range seg.order {
		r := &p.recs[i]
		key := s.keyOf(seg.st, r)
		at, before := s.moves.find(key)
		if !before {
			at = r.time
			if s.streams.uniqueTimes {
				at = s.streams.uniqueTime(spare, at)
			}
			s.moves.add(key, at)
			s.observed.inc(reason(seg.st.fullReason.Load()))
		}
		p.remember(i, key)
		r.data, r.time, r.next = s.rewriteEntry(p.form, r.data, at, lost, !before), at, false
	}
	p.sort(seg.order)
	seg.st = spare
}

// originalTime is the name of the metadata that contains the original time of a record that was
// given the current time.
const originalTime = "original_time"

// errOld is the error of the event too-old.
var errOld = errors.New("loki: records that are too old are sent with the current time; the original time is in the metadata " + originalTime)

// oldReportInterval is the shortest interval between two events with errOld.
const oldReportInterval = 10 * time.Minute

// restamp sets the time of r, which is record i of p, to the current time, and adds the original
// time to its metadata. The record keeps its new time when it is sent again. No two records get the
// same new time, so that Loki stores both of two equal records. Concurrent calls must have
// different records.
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

// keyOf returns the key of r in client.moves. The parameter st is the stream of r before the move.
func (s *client) keyOf(st *stream, r *rec) recordKey {
	return recordKey{st, r.time, maphash.Bytes(s.streams.seed, r.data)}
}

// rewriteEntry returns a copy of the entry rec with a new time, in Unix ns, and additional
// metadata. Metadata beyond the limits is omitted and, if count is true, counted. For a record that
// is sent again, count is false.
func (s *client) rewriteEntry(f form, rec []byte, at int64, extra []label, count bool) []byte {
	have := map[string]string{}
	pairs, size := 0, 0
	f.metadata(rec, func(name, value []byte) {
		have[string(name)] = string(value)
		pairs, size = pairs+1, size+len(name)+len(value)
	})
	out := f.reopen(rec, at)
	for _, m := range extra {
		name, exists := freeName(have, m)
		if exists {
			continue
		}
		n := len(name) + len(m.value)
		if pairs >= s.c.Limits.MaxMetadataPairs || size+n > s.c.Limits.MaxMetadataBytes {
			if count {
				s.observed.inc(metadataLeftOut)
			}
			continue
		}
		pairs, size = pairs+1, size+n
		have[name] = m.value
		if f == jsonForm {
			out = jsontext.AppendString(jsontext.AppendKey(out, name), m.value)
		} else {
			out = appendMetadata(out, []byte(name), []byte(m.value))
		}
	}
	return f.close(out)
}

// freeName returns a metadata name for m that is not a key of the map have. If that map already
// contains the value of m under its name, or under its name with a number, exists is true, and m
// need not be added.
func freeName(have map[string]string, m label) (name string, exists bool) {
	name = m.name
	for n := 2; ; n++ {
		value, taken := have[name]
		if !taken || value == m.value {
			return name, taken
		}
		name = string(numberedName(nil, []byte(m.name), n))
	}
}
