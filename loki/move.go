package loki

import (
	"bytes"
	"encoding/json"
	"slices"
	"sync"

	"github.com/forebay-log/forebay/encode"
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

// spareStream returns the stream that records go to when Loki does not take their
// own: that of their level without labels of attributes. It returns nil if seg is
// it.
func (s *Pusher) spareStream(seg segment) *stream {
	def := s.enc.appendStream(nil, []byte(seg.st.tenant), seg.level, nil)
	if bytes.Equal(def, seg.st.key) {
		return nil
	}
	return s.streams.add(def, true)
}

// move makes entries of a stream that Loki does not take, because there are too
// many or for its labels, entries of the spare one, if there is one. The labels it has not
// become metadata. With Config.Nudge times are given out anew, since the streams
// that come together there may have had the same.
func (s *Pusher) move(p *push, seg *segment) {
	spare := s.spareStream(*seg)
	if spare == nil {
		return
	}
	var lost []pair
	kept := map[string]bool{}
	eachLabel(spare.labels, func(name []byte, _ string) { kept[string(name)] = true })
	eachLabel(seg.st.labels, func(name []byte, value string) {
		if !kept[string(name)] {
			lost = append(lost, pair{name: metaName(string(name)), value: []byte(value)})
		}
	})
	for _, i := range seg.order {
		r := &p.recs[i]
		key := s.keyOf(seg.st, r)
		at, before := s.moves.find(key)
		if !before {
			at = r.time
			if s.streams.nudge {
				at = s.nudge(spare, at)
			}
			s.moves.add(key, at)
			s.count(Reason(seg.st.why.Load()))
		}
		p.mu.Lock()
		if p.moved == nil {
			p.moved = map[int32]recordKey{}
		}
		p.moved[i] = key
		p.mu.Unlock()
		r.data, r.time, r.next = s.enc.moved(r.data, at, lost, !before), at, false
	}
	p.sort(seg.order)
	seg.st = spare
}

// arrived forgets records that were moved and are stored.
func (s *Pusher) arrived(p *push, seg segment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.moved) == 0 {
		return
	}
	for _, i := range seg.order {
		if key, ok := p.moved[i]; ok {
			s.moves.remove(key)
		}
	}
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
func (e *Encoder) moved(rec []byte, at int64, more []pair, count bool) []byte {
	c := &e.s.c
	have := map[string]string{}
	note := func(name, value []byte) { have[string(name)] = string(value) }
	var out []byte
	if e.json {
		en, _ := parseJSON(rec)
		if len(en.meta) > 0 && (json.Unmarshal(en.meta, &have) != nil || have == nil) {
			have = map[string]string{}
		}
		head := bytes.IndexByte(rec[2:], '"') + 2 // behind the time
		out = append(beginJSON(nil, at), rec[head+len(`","`):]...)
		out = out[:len(out)-1] // the bracket
		if len(en.meta) > 0 {
			out = out[:len(out)-1]
		} else {
			out = append(out, ",{"...)
		}
	} else {
		en, _ := parseProto(rec)
		eachMetadata(en.meta, note)
		out = slices.Clone(rec)
		copy(out[entryHead:entryHead+timeBytes], beginEntry(nil, at)[entryHead:])
	}
	pairs, size := e.metaSize(rec)
	for _, m := range more {
		name, there := free(have, m)
		if there {
			continue
		}
		n := len(name) + len(m.value)
		if pairs >= c.MaxMetadataPairs || size+n > c.MaxMetadataBytes {
			if count {
				e.s.count(MetadataLeftOut)
			}
			continue
		}
		pairs, size = pairs+1, size+n
		have[string(name)] = string(m.value)
		if e.json {
			out = encode.AppendString(encode.AppendKey(out, string(name)), string(m.value))
		} else {
			out = appendMetadata(out, name, m.value)
		}
	}
	if !e.json {
		endEntry(out, 0)
		return out
	}
	if out[len(out)-1] == '{' {
		return append(out[:len(out)-2], ']')
	}
	return append(out, "}]"...)
}

// free returns the name m gets beside the metadata there is, where another attribute
// may have its own, or says that the value is there already.
func free(have map[string]string, m pair) (name []byte, there bool) {
	name = m.name
	for n := 2; ; n++ {
		value, taken := have[string(name)]
		if !taken || value == string(m.value) {
			return name, taken
		}
		name = another(nil, m.name, n)
	}
}
