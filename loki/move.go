package loki

import (
	"hash/maphash"
	"sync"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// moves remembers the new times of records that were moved to another stream or given the current time.
// When such a record is sent again, it keeps its time, so that Loki recognizes the copy, and it is
// counted once.
type moves struct {
	mu sync.Mutex
	at map[recordKey]int64 // new time, in Unix ns
}

// A recordKey identifies a record in flight by its contents, because tickets of different Writers can be
// equal.
type recordKey struct {
	from *stream // the stream before the move
	time int64   // the time before the move, in Unix ns
	hash uint64  // hash of the entry before the move
}

// maxMoves limits the number of records that moves remembers. At the limit all are forgotten; a record
// that is then sent again gets another time.
const maxMoves = 1 << 16

// move moves the entries of a segment to a spare stream, because Loki does not accept their own stream:
// there are too many streams, or its labels are refused. Labels that the spare stream does not have with
// the same value become metadata. With Config.UniqueTimes the entries get times that are unused in the
// spare stream, because it may receive records of several streams. move sorts the segment again.
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

// remember stores a key of client.moves for record i, so that forgetMove can remove it.
func (p *push) remember(i int32, key recordKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.movedKeys == nil {
		p.movedKeys = map[int32][]recordKey{}
	}
	p.movedKeys[i] = append(p.movedKeys[i], key)
}

// forgetMove removes the keys of a settled record from s.moves. The caller holds p.mu.
func (s *client) forgetMove(p *push, i int32) {
	for _, key := range p.movedKeys[i] {
		s.moves.remove(key)
	}
}

// keyOf returns the key of r, a record of st, in client.moves.
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

func (m *moves) remove(k recordKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.at, k)
}

// rewriteEntry returns a copy of the entry rec with another time and additional metadata within the
// limits. Metadata beyond the limits is omitted, and counted if count is set.
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

// freeName returns an unused metadata name for m. exists reports that the metadata already contains a
// pair with this value.
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
