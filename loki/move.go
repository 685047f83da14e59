package loki

import (
	"hash/maphash"
	"sync"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// moves remembers the times of records that were moved to another stream, so that
// they have the same when they are sent again, and are counted once.
type moves struct {
	mu sync.Mutex
	at map[recordKey]int64
}

// A recordKey is a record on its way, told by what it is: tickets can be of several
// memories.
type recordKey struct {
	from *stream
	time int64
	hash uint64 // of the entry
}

// maxMoves is how many moved records on their way are remembered.
const maxMoves = 1 << 16

// move makes entries of a stream that Loki does not take, because there are too
// many or for its labels, entries of a spare one. The labels that has not, or has with
// another value, become metadata. With Config.Nudge times are given out anew, since the streams
// that come together there may have had the same.
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
				at = s.streams.nudged(spare, at)
			}
			s.moves.add(key, at)
			s.noticed.note(reason(seg.st.why.Load()))
		}
		p.remember(i, key)
		r.data, r.time, r.next = s.moved(p.form, r.data, at, lost, !before), at, false
	}
	p.sort(seg.order)
	seg.st = spare
}

// remember notes a key of moves, for forget.
func (p *push) remember(i int32, key recordKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.moved == nil {
		p.moved = map[int32][]recordKey{}
	}
	p.moved[i] = append(p.moved[i], key)
}

// forget forgets that a record was moved: it is settled. p.mu is held.
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

// moved returns a copy of an entry with another time and more metadata, as far as
// the limits allow. What has no room is counted, if that is wanted.
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
				s.noticed.note(metadataLeftOut)
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

// free returns the name m gets beside the metadata there is, where another attribute
// may have its own, or says that the value is there already.
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
