package loki

import (
	"hash/maphash"
	"sync"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// moves remembers the new times of records that were moved to another stream. A record keeps its
// time when it is sent again, and is counted once.
type moves struct {
	mu sync.Mutex
	at map[recordKey]int64
}

// A recordKey identifies a record in flight by its contents, because tickets of different Writers
// can be equal.
type recordKey struct {
	from *stream
	time int64
	hash uint64 // hash of the entry
}

// maxMoves limits the number of moved records that are remembered.
const maxMoves = 1 << 16

// move moves the entries of a segment to a spare stream, because Loki does not accept their own
// stream: there are too many streams, or its labels are refused. Labels that the spare stream does
// not have with the same value become metadata. With Config.Nudge the entries get new times, because
// records of several streams may have the same time.
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
			if s.streams.nudge {
				at = s.streams.uniqueTime(spare, at)
			}
			s.moves.add(key, at)
			s.observed.note(reason(seg.st.why.Load()))
		}
		p.remember(i, key)
		r.data, r.time, r.next = s.moved(p.form, r.data, at, lost, !before), at, false
	}
	p.sort(seg.order)
	seg.st = spare
}

// remember stores a key of moves for forget.
func (p *push) remember(i int32, key recordKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.moved == nil {
		p.moved = map[int32][]recordKey{}
	}
	p.moved[i] = append(p.moved[i], key)
}

// forget removes a settled record from moves. The caller holds p.mu.
func (s *client) forget(p *push, i int32) {
	for _, key := range p.moved[i] {
		s.moves.remove(key)
	}
}

func (s *client) keyOf(st *stream, r *rec) recordKey {
	return recordKey{st, r.time, maphash.Bytes(s.streams.seed, r.data)}
}

func (m *moves) find(k recordKey) (at int64, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok = m.at[k]
	return at, ok
}

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

// moved returns a copy of an entry with another time and additional metadata within the limits. If
// count is set, metadata that exceeds them is counted.
func (s *client) moved(f form, rec []byte, at int64, more []label, count bool) []byte {
	have := map[string]string{}
	pairs, size := 0, 0
	f.metadata(rec, func(name, value []byte) {
		have[string(name)] = string(value)
		pairs, size = pairs+1, size+len(name)+len(value)
	})
	out := f.reopen(rec, at)
	for _, m := range more {
		name, there := free(have, m)
		if there {
			continue
		}
		n := len(name) + len(m.value)
		if pairs >= s.c.Limits.MaxMetadataPairs || size+n > s.c.Limits.MaxMetadataBytes {
			if count {
				s.observed.note(metadataLeftOut)
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

// free returns a free metadata name for m, or reports that the metadata already has its value.
func free(have map[string]string, m label) (name string, there bool) {
	name = m.name
	for n := 2; ; n++ {
		value, taken := have[name]
		if !taken || value == m.value {
			return name, taken
		}
		name = string(another(nil, []byte(m.name), n))
	}
}
