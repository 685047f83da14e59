package loki

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// A stream is a label set of one tenant. All fields except the atomic ones are immutable.
type stream struct {
	id     uint32
	key    []byte // its definition, see [appendStreamDef]
	labels []byte // {a="b", c="d"}, names sorted; part of key
	tenant string // "" for the tenant of the Config
	broken bool   // the definition is invalid: all records are refused
	denial reason // reason of the refusal of a broken stream

	pace  pace    // rate of the stream and its limit
	trust trust   // trust in responses to requests with several streams
	owner *tenant // the tenant of the stream

	recent          *recent       // recently used times; nil without Config.Nudge
	fullUntil       atomic.Int64  // Unix ns until which Loki does not accept the stream, see move
	why             atomic.Uint32 // reason of fullUntil
	unacceptedSince atomic.Int64  // Unix ns since which neither this nor a spare stream was accepted; 0 if one was
}

// isFull reports whether Loki recently refused s because of a limit of streams.
func (s *stream) isFull() bool { return s.fullUntil.Load() > time.Now().UnixNano() }

// unacceptedFor returns how long no stream has been accepted for records of s.
func (s *stream) unacceptedFor(now time.Time) time.Duration {
	if s.unacceptedSince.CompareAndSwap(0, now.UnixNano()) {
		return 0
	}
	return now.Sub(time.Unix(0, s.unacceptedSince.Load()))
}

// A registry assigns ids to streams and finds streams without a lock. It is the [batch.Dictionary]
// of a [Driver]. Stream 0 is the stream of warnings, which also receives gap markers.
type registry struct {
	seed     maphash.Seed
	observed *observations
	limit    int                     // maximal number of streams made by records; streams read from disk may exceed it
	nudge    bool                    // Config.Nudge is set
	pages    atomic.Int64            // number of pages of recent times, see recent
	plain    [len(levelNames)][]byte // for each level the labels without labels from attributes

	table   atomic.Pointer[streamTable]
	mu      sync.Mutex         // held while a stream is added
	tenants map[string]*tenant // guarded by mu
}

// A streamTable is a hash table of streams. Streams are only added; a full table is replaced by a
// larger copy.
type streamTable struct {
	slots []atomic.Pointer[stream] // open addressing, a power of two
	byID  []atomic.Pointer[stream] // half as many
	n     atomic.Int64
}

func newStreamTable(size int) *streamTable {
	return &streamTable{slots: make([]atomic.Pointer[stream], size), byID: make([]atomic.Pointer[stream], size/2)}
}

func newRegistry(limit int, nudge bool, n *observations) *registry {
	r := &registry{seed: maphash.MakeSeed(), observed: n, limit: limit, nudge: nudge, tenants: map[string]*tenant{}}
	r.table.Store(newStreamTable(64))
	return r
}

// find returns the stream with the given definition, or nil.
func (r *registry) find(key []byte) *stream {
	return r.table.Load().find(maphash.Bytes(r.seed, key), key)
}

func (t *streamTable) find(h uint64, key []byte) *stream {
	mask := uint64(len(t.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		s := t.slots[i].Load()
		if s == nil || bytes.Equal(s.key, key) {
			return s
		}
	}
}

func (t *streamTable) insert(h uint64, s *stream) {
	mask := uint64(len(t.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		if t.slots[i].Load() == nil {
			t.byID[s.id].Store(s)
			t.slots[i].Store(s)
			return
		}
	}
}

// get returns the stream with an id, or nil.
func (r *registry) get(id uint32) *stream {
	t := r.table.Load()
	if uint64(id) >= uint64(len(t.byID)) {
		return nil
	}
	return t.byID[id].Load()
}

// add returns the stream with the given definition, and creates it if necessary. It returns nil if
// the limit is reached, unless unbounded is set. It copies key.
func (r *registry) add(key []byte, unbounded bool) *stream {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.table.Load()
	h := maphash.Bytes(r.seed, key)
	if s := t.find(h, key); s != nil {
		return s
	}
	n := int(t.n.Load())
	if n >= r.limit && !unbounded {
		return nil
	}
	s := &stream{id: uint32(n), key: bytes.Clone(key)}
	name, labels, ok := parseStreamDef(s.key)
	if s.tenant, s.labels, s.broken = name, labels, !ok; !ok {
		s.denial = denialOf(key)
	}
	if s.owner = r.tenants[name]; s.owner == nil {
		s.owner = new(tenant)
		r.tenants[name] = s.owner
	}
	if r.nudge {
		s.recent = &recent{budget: &r.pages}
	}
	if n == len(t.byID) {
		larger := newStreamTable(2 * len(t.slots))
		for i := range t.byID {
			old := t.byID[i].Load()
			larger.insert(maphash.Bytes(r.seed, old.key), old)
		}
		larger.n.Store(int64(n))
		t = larger
	}
	t.insert(h, s)
	t.n.Store(int64(n + 1))
	r.table.Store(t)
	return s
}

// hasTenant reports whether the tenant has a stream.
func (r *registry) hasTenant(name []byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tenants[string(name)] != nil
}

// spare returns the stream that receives the records of st while Loki does not accept st: the stream
// of the same level without labels from attributes, or, if Loki does not accept that either, the
// nearest level whose stream Loki has accepted before. It returns nil if there is none except st.
func (r *registry) spare(st *stream, level int) *stream {
	head := appendStreamDef(nil, []byte(st.tenant))
	plain := func(level int) *stream { return r.find(append(slices.Clip(head), r.plain[level]...)) }
	first := r.add(append(slices.Clip(head), r.plain[level]...), true)
	if first != st && !first.isFull() {
		return first
	}
	for by := 1; by < len(r.plain); by++ {
		for _, near := range [...]int{level + by, level - by} {
			if near < 0 || near >= len(r.plain) {
				continue
			}
			if to := plain(near); to != nil && to != st && !to.isFull() && to.pace.passed.Load() > 0 {
				return to
			}
		}
	}
	if first == st {
		return nil
	}
	return first
}

func (r *registry) len() int { return int(r.table.Load().n.Load()) }

// denyStream returns the stream of records that their encoder refuses for a reason.
func (r *registry) denyStream(why reason) *stream { return r.add(denialDef(why), true) }

// denialDef returns the definition of such a stream. Its tenant name is invalid, and so unique.
func denialDef(why reason) []byte { return appendStreamDef(nil, []byte("|"+why.String())) }

// denialOf returns the reason encoded in a definition of denialDef, otherwise malformed.
func denialOf(def []byte) reason {
	for _, why := range [...]reason{badTenant, streamsFull} {
		if bytes.Equal(def, denialDef(why)) {
			return why
		}
	}
	return malformed
}

// defVersion is the first byte of a stream definition.
const defVersion = 1

// appendStreamDef appends the beginning of a stream definition, to which the caller appends the
// labels. A definition consists of a version, the length and name of the tenant, and the labels
// in the syntax of Loki.
func appendStreamDef(dst, tenant []byte) []byte {
	dst = append(dst, defVersion)
	dst = binary.AppendUvarint(dst, uint64(len(tenant)))
	return append(dst, tenant...)
}

func parseStreamDef(def []byte) (tenant string, labels []byte, ok bool) {
	if len(def) < 2 || def[0] != defVersion {
		return "", nil, false
	}
	n, k := binary.Uvarint(def[1:])
	rest := def[1+max(k, 0):]
	if k <= 0 || n > uint64(len(rest)) || checkTenant(rest[:n]) != "" {
		return "", nil, false
	}
	labels = rest[n:]
	if len(labels) < 2 || labels[0] != '{' || labels[len(labels)-1] != '}' {
		return "", nil, false
	}
	return string(rest[:n]), labels, true
}

// plainDef reports whether a definition certainly contains no character that Loki refuses in labels:
// U+FFFD or invalid UTF-8, literal or escaped.
func plainDef(def []byte) bool {
	for i, c := range def {
		if c >= utf8.RuneSelf || c == '\\' && i+1 < len(def) && bytes.IndexByte([]byte(`xuU01234567`), def[i+1]) >= 0 {
			return false
		}
	}
	return true
}

// appendFit appends labels with the values escaped by [appendQuoted]. Unparsable labels are appended
// unchanged.
func appendFit(dst, labels []byte) []byte {
	start := len(dst)
	dst = append(dst, '{')
	ok := eachLabel(labels, func(name []byte, value string) {
		if len(dst) > start+1 {
			dst = append(dst, ", "...)
		}
		dst = appendQuoted(append(append(dst, name...), '='), []byte(value))
	})
	if !ok {
		return append(dst[:start], labels...)
	}
	return append(dst, '}')
}

const (
	// fullFor is how long a stream is not tried again after Loki refused it for a limit of streams.
	fullFor = 10 * time.Minute
	// streamTimeout is how long records wait if no stream is accepted. Loki drops idle streams after
	// half an hour.
	streamTimeout = time.Hour
)

// describe returns the text of s for errors.
func (s *stream) describe() string {
	if s.tenant == "" {
		return string(cutUTF8(s.labels, 200))
	}
	return fmt.Sprintf("%s of tenant %s", cutUTF8(s.labels, 200), s.tenant)
}

// AppendStream appends the definition of stream id.
func (r *registry) AppendStream(dst []byte, id uint32) ([]byte, bool) {
	st := r.get(id)
	if st == nil {
		return dst, false
	}
	return append(dst, st.key...), true
}

// Stream returns the id of the stream with a definition, and creates the stream if necessary. If the
// definition is from an earlier version and has values that Loki refuses, they are replaced first.
func (r *registry) Stream(def []byte) uint32 {
	if !plainDef(def) {
		if tenant, labels, ok := parseStreamDef(def); ok {
			def = appendFit(appendStreamDef(nil, []byte(tenant)), labels)
		}
	}
	st := r.add(def, true)
	if !st.broken {
		st.owner.use()
	}
	return st.id
}
