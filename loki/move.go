package loki

import (
	"hash/maphash"
	"sync"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// moves stores the new times of records that were moved to another stream or given the current
// time. When such a record is sent again, it keeps its new time, so that Loki recognizes the copy
// and the record is counted only once. All methods are safe for concurrent use.
type moves struct {
	mu sync.Mutex
	at map[recordKey]int64 // new time, in Unix ns
}

// A recordKey identifies a record in flight by its contents. Tickets do not identify it, because
// tickets of different Writers can be equal.
type recordKey struct {
	from *stream // the stream before the move
	time int64   // the time before the move, in Unix ns
	hash uint64  // hash of the entry before the move
}

// maxMoves limits the number of records that moves stores. At the limit all are forgotten. A record
// that is sent again afterwards gets another time.
const maxMoves = 1 << 16

// move moves the entries of a segment to a spare stream. It is called if Loki does not accept their
// own stream, because there are too many streams or because the labels are refused. Labels that the
// spare stream does not have with the same value become metadata. With Config.UniqueTimes the
// entries get times that are unused in the spare stream, because the spare stream may receive
// records of several streams. The segment is then sorted again.
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

// remember stores a key of client.moves for record i, so that forgetMove can remove the key when
// the record is settled.
func (p *push) remember(i int32, key recordKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.movedKeys == nil {
		p.movedKeys = map[int32][]recordKey{}
	}
	p.movedKeys[i] = append(p.movedKeys[i], key)
}

// forgetMove removes the keys of the settled record i from s.moves. The caller holds p.mu.
func (s *client) forgetMove(p *push, i int32) {
	for _, key := range p.movedKeys[i] {
		s.moves.remove(key)
	}
}

// keyOf returns the key of r in client.moves. st is the stream of r before the move.
func (s *client) keyOf(st *stream, r *rec) recordKey {
	return recordKey{st, r.time, maphash.Bytes(s.streams.seed, r.data)}
}

// find returns the new time of the record with key k, in Unix ns.
func (m *moves) find(k recordKey) (at int64, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok = m.at[k]
	return at, ok
}

// add stores the new time of the record with key k, in Unix ns.
func (m *moves) add(k recordKey, at int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at == nil || len(m.at) >= maxMoves {
		m.at = map[recordKey]int64{}
	}
	m.at[k] = at
}

// remove removes the record with key k.
func (m *moves) remove(k recordKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.at, k)
}

// rewriteEntry returns a copy of the entry rec with the time at, in Unix ns, and the additional
// metadata more. Metadata beyond the limits is omitted, and counted if count is set. count is false
// for a record that is sent again.
func (s *client) rewriteEntry(f form, rec []byte, at int64, more []label, count bool) []byte {
	have := map[string]string{}
	pairs, size := 0, 0
	f.metadata(rec, func(name, value []byte) {
		have[string(name)] = string(value)
		pairs, size = pairs+1, size+len(name)+len(value)
	})
	out := f.reopen(rec, at)
	for _, m := range more {
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

// freeName returns a metadata name for m that is not in have. If have contains a pair with the name
// and value of m, possibly with a number in the name, exists is true and m need not be added.
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
