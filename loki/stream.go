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

// A stream is a set of labels of one tenant. It is immutable but
// for what is atomic.
type stream struct {
	id     uint32
	key    []byte // what identifies it: see [appendStreamDef]
	labels []byte // {a="b", c="d"}, names sorted; part of key
	tenant string // "": that of the Config
	broken bool   // it is none that Loki could have: its records are refused
	denial reason // why they are

	pace  pace    // of the limit of the stream
	trust trust   // in answers to requests with other streams
	owner *tenant // its tenant

	recent *recent       // times given out, nil without Config.Nudge
	full   atomic.Int64  // until then, in Unix ns, Loki does not take this one, see move
	why    atomic.Uint32 // the reason of that
	wanted atomic.Int64  // since when it is tried in vain, nor a spare stream is taken, in Unix ns; 0: it is not
}

// isFull reports whether Loki had no room for s of late.
func (s *stream) isFull() bool { return s.full.Load() > time.Now().UnixNano() }

// waited returns for how long records of s have found no stream.
func (s *stream) waited(now time.Time) time.Duration {
	if s.wanted.CompareAndSwap(0, now.UnixNano()) {
		return 0
	}
	return now.Sub(time.Unix(0, s.wanted.Load()))
}

// A registry gives numbers to streams and finds them again without a lock. It is
// the [batch.Dictionary] of a [Driver]. Stream 0 is that of warnings, because gap
// markers belong to it.
type registry struct {
	seed    maphash.Seed
	noticed *noticed
	limit   int                     // streams that records may make; those read from disk may exceed it
	nudge   bool                    // streams remember times
	pages   atomic.Int64            // of times, see recent
	plain   [len(levelNames)][]byte // by level, the labels of streams without labels of attributes

	table   atomic.Pointer[streamTable]
	mu      sync.Mutex         // held to add a stream
	tenants map[string]*tenant // guarded by mu
}

// streamTable is one state of a registry. Streams are only ever added; a table
// that gets too full is replaced by a larger one.
type streamTable struct {
	slots []atomic.Pointer[stream] // open addressing, a power of two
	byID  []atomic.Pointer[stream] // half as many
	n     atomic.Int64
}

func newStreamTable(size int) *streamTable {
	return &streamTable{slots: make([]atomic.Pointer[stream], size), byID: make([]atomic.Pointer[stream], size/2)}
}

func newRegistry(limit int, nudge bool, n *noticed) *registry {
	r := &registry{seed: maphash.MakeSeed(), noticed: n, limit: limit, nudge: nudge, tenants: map[string]*tenant{}}
	r.table.Store(newStreamTable(64))
	return r
}

// find returns the stream with the given definition, nil if there is none.
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

// get returns the stream of a number, nil if it was never given out.
func (r *registry) get(id uint32) *stream {
	t := r.table.Load()
	if uint64(id) >= uint64(len(t.byID)) {
		return nil
	}
	return t.byID[id].Load()
}

// add returns the stream with the given definition and makes it if there is none.
// It returns nil if that would be one too many. It copies key.
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

// hasTenant reports whether there is a stream of that tenant.
func (r *registry) hasTenant(name []byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tenants[string(name)] != nil
}

// spare returns the stream that records of st go to when Loki does not take it: that
// of their level without labels of attributes, or else, if Loki has no room for that
// either, that of another level which Loki has: the nearest one. It returns nil if there
// is none but st.
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

// denying returns the stream of records that are refused for a reason that their encoder
// has found.
func (r *registry) denying(why reason) *stream { return r.add(denialDef(why), true) }

// denialDef is the definition of such a stream. No tenant has a name like its.
func denialDef(why reason) []byte { return appendStreamDef(nil, []byte("|"+why.String())) }

// denialOf returns why the records of a stream are refused whose definition is none.
func denialOf(def []byte) reason {
	for _, why := range [...]reason{badTenant, streamsFull} {
		if bytes.Equal(def, denialDef(why)) {
			return why
		}
	}
	return malformed
}

// defVersion is the first byte of a stream's definition.
const defVersion = 1

// appendStreamDef appends the beginning of the definition of a stream; its labels
// follow. A definition is a version, the tenant with its length, and the labels
// as Loki reads them.
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

// plainDef reports whether nothing in a definition can stand for a character that
// Loki refuses in a label: U+FFFD, or bytes that are no UTF-8, as they are or escaped.
func plainDef(def []byte) bool {
	for i, c := range def {
		if c >= utf8.RuneSelf || c == '\\' && i+1 < len(def) && bytes.IndexByte([]byte(`xuU01234567`), def[i+1]) >= 0 {
			return false
		}
	}
	return true
}

// appendFit appends labels with their values as [appendQuoted] writes them. What it
// cannot read it appends as it is.
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
	// fullFor is how long a stream that Loki had no room for is not tried again.
	fullFor = 10 * time.Minute
	// streamPatience is how long records wait that find no stream at all. Loki gives up
	// streams that nobody writes to after half an hour.
	streamPatience = time.Hour
)

// describe is the stream in an error.
func (s *stream) describe() string {
	if s.tenant == "" {
		return string(cutUTF8(s.labels, 200))
	}
	return fmt.Sprintf("%s of tenant %s", cutUTF8(s.labels, 200), s.tenant)
}

// AppendStream appends the definition of stream id: its tenant and labels.
func (r *registry) AppendStream(dst []byte, id uint32) ([]byte, bool) {
	st := r.get(id)
	if st == nil {
		return dst, false
	}
	return append(dst, st.key...), true
}

// Stream returns the number of the stream with that definition and gives one out
// if there is none. A definition that another version has written with values that
// Loki refuses is that of the stream this one would have made.
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
