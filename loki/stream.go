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

// A stream is a label set of one tenant. The atomic fields and the fields pace, trust and usedTimes
// are safe for concurrent use. The other fields are immutable.
type stream struct {
	id     uint32
	key    []byte // definition of the stream, see [appendStreamDef]
	labels []byte // {a="b", c="d"}, sorted by name; part of key
	tenant string // "" for the tenant of the Config
	broken bool   // the definition is invalid, so all records are refused
	denial reason // reason of the refusal of a broken stream

	pace  pace    // rate limit of the stream
	trust trust   // which entries Loki has confirmed
	owner *tenant // state of the tenant, shared by its streams

	usedTimes *usedTimes // recently used times of records; nil without Config.UniqueTimes
	// Until the time fullUntil, in Unix ns, the records go to a spare stream, because Loki does not
	// accept this stream. The reason is in fullReason.
	fullUntil  atomic.Int64
	fullReason atomic.Uint32
	// unacceptedSince is the time, in Unix ns, since which Loki has accepted neither this stream
	// nor a spare stream for its records. After an acceptance it is 0.
	unacceptedSince atomic.Int64
}

// isFull reports whether Loki has recently refused s because of its labels or a limit of streams.
func (s *stream) isFull() bool { return s.fullUntil.Load() > time.Now().UnixNano() }

// unacceptedFor returns for how long Loki has accepted no stream for the records of s. The first
// call after an acceptance starts the measurement and returns 0.
func (s *stream) unacceptedFor(now time.Time) time.Duration {
	if s.unacceptedSince.CompareAndSwap(0, now.UnixNano()) {
		return 0
	}
	return now.Sub(time.Unix(0, s.unacceptedSince.Load()))
}

// A registry assigns ids to streams. It is the [batch.Dictionary] of a [Driver]. Streams are never
// removed, so an id remains valid. Package deliver writes gap markers, the lines that report
// dropped records, with the id 0. Therefore stream 0 is the stream for gap markers, which is
// usually that of warnings. All methods are safe for concurrent use. Finding a stream takes no
// lock; adding one takes mu.
type registry struct {
	seed     maphash.Seed
	observed *observations
	// limit is the maximum number of streams that are created for new records. Streams read from
	// disk may exceed it.
	limit       int
	uniqueTimes bool                    // Config.UniqueTimes
	extraPages  atomic.Int64            // number of pages of usedTimes of all streams beyond ownPages
	levelLabels [len(levelNames)][]byte // by level: labels of the stream that has no labels from attributes

	table   atomic.Pointer[streamTable]
	mu      sync.Mutex         // held while a stream is added; no other lock is acquired under it
	tenants map[string]*tenant // guarded by mu
}

// A streamTable is a hash table to which streams are only added. A full table is replaced by a copy
// of twice the size. Readers may still use the old table, because it still contains all its
// streams.
type streamTable struct {
	slots []atomic.Pointer[stream] // hash table with open addressing; the length is a power of two
	byID  []atomic.Pointer[stream] // half as long as slots, so that slots is never full
	n     atomic.Int64             // number of streams
}

// newStreamTable returns a table with room for size/2 streams. size must be a power of two.
func newStreamTable(size int) *streamTable {
	return &streamTable{slots: make([]atomic.Pointer[stream], size), byID: make([]atomic.Pointer[stream], size/2)}
}

// newRegistry returns an empty registry. At most limit streams are created for new records.
func newRegistry(limit int, uniqueTimes bool, n *observations) *registry {
	r := &registry{seed: maphash.MakeSeed(), observed: n, limit: limit, uniqueTimes: uniqueTimes, tenants: map[string]*tenant{}}
	r.table.Store(newStreamTable(64))
	return r
}

// find returns the stream with the given definition (see appendStreamDef), or nil.
func (r *registry) find(key []byte) *stream {
	return r.table.Load().find(maphash.Bytes(r.seed, key), key)
}

// find returns the stream with the given definition, whose hash is h, or nil.
func (t *streamTable) find(h uint64, key []byte) *stream {
	mask := uint64(len(t.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		s := t.slots[i].Load()
		if s == nil || bytes.Equal(s.key, key) {
			return s
		}
	}
}

// insert adds s, whose definition has the hash h. The caller holds registry.mu. The entry in byID
// is stored before the entry in slots, so that a reader that finds a stream by its definition can
// also find it by its id.
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

// get returns the stream with the given id, or nil.
func (r *registry) get(id uint32) *stream {
	t := r.table.Load()
	if uint64(id) >= uint64(len(t.byID)) {
		return nil
	}
	return t.byID[id].Load()
}

// uniqueTime returns the first unused time from t on, in Unix ns, and marks it as used. If there is
// none that is certainly unused, the problem timeNotUnique is counted.
func (r *registry) uniqueTime(st *stream, t int64) int64 {
	at, unique := st.usedTimes.take(t)
	if !unique {
		r.observed.inc(timeNotUnique)
	}
	return at
}

// add returns the stream with the given definition, and creates it if necessary. It copies key. If
// the limit is reached, it returns nil instead of creating a stream, unless unbounded is true.
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
	if r.uniqueTimes {
		s.usedTimes = &usedTimes{extraPages: &r.extraPages}
	}
	if n == len(t.byID) {
		// The table is full. Readers continue to use it until the larger copy is stored.
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

// hasTenant reports whether a stream of the tenant with the given name exists.
func (r *registry) hasTenant(name []byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tenants[string(name)] != nil
}

// othersAcceptable reports whether Loki may accept the records of another tenant than t. Such a
// tenant must have records, and must not have been refused within denialPeriod.
func (r *registry) othersAcceptable(t *tenant, now time.Time) bool {
	return r.anyOther(t, func(other *tenant) bool { return other.acceptable(now) })
}

// othersHaveRoom is like othersAcceptable. In addition, the rate limit of the other tenant must not
// be reached.
func (r *registry) othersHaveRoom(t *tenant, now time.Time) bool {
	return r.anyOther(t, func(other *tenant) bool {
		return other.acceptable(now) && other.pace.closedUntil.Load() <= now.UnixNano()
	})
}

// anyOther reports whether the function matches returns true for a tenant other than t that has
// records. It calls matches with r.mu held, so matches must not use r.
func (r *registry) anyOther(t *tenant, matches func(*tenant) bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.tenants {
		if other != t && other.hasRecords.Load() && matches(other) {
			return true
		}
	}
	return false
}

// spare returns the stream that receives the records of st while Loki does not accept st, or nil if
// there is none. level is the level of the records. The spare stream has the same tenant and level,
// but no labels from attributes. If Loki does not accept that stream either, spare chooses among
// the streams of other levels that Loki has accepted before, and returns that of the nearest level.
func (r *registry) spare(st *stream, level int) *stream {
	head := appendStreamDef(nil, []byte(st.tenant))
	plain := func(level int) *stream { return r.find(append(slices.Clip(head), r.levelLabels[level]...)) }
	first := r.add(append(slices.Clip(head), r.levelLabels[level]...), true)
	if first != st && !first.isFull() {
		return first
	}
	for by := 1; by < len(r.levelLabels); by++ {
		for _, near := range [...]int{level + by, level - by} {
			if near < 0 || near >= len(r.levelLabels) {
				continue
			}
			if to := plain(near); to != nil && to != st && !to.isFull() && to.pace.lastAccepted.Load() > 0 {
				return to
			}
		}
	}
	if first == st {
		return nil
	}
	return first
}

// len returns the number of streams.
func (r *registry) len() int { return int(r.table.Load().n.Load()) }

// denyStream returns a stream for records that the encoder has refused for the given reason. Send
// also refuses the records of this stream, so that they become dead letters.
func (r *registry) denyStream(why reason) *stream { return r.add(denialDef(why), true) }

// denialDef returns the definition of a stream for denyStream. The tenant name in it is invalid, so
// no other stream has this definition.
func denialDef(why reason) []byte { return appendStreamDef(nil, []byte("|"+why.String())) }

// denialOf returns the reason in a definition made by denialDef, and malformed for any other invalid
// definition.
func denialOf(def []byte) reason {
	for _, why := range [...]reason{badTenant, streamsFull} {
		if bytes.Equal(def, denialDef(why)) {
			return why
		}
	}
	return malformed
}

// defVersion is the first byte of a stream definition and identifies its version. Definitions are
// stored in spools and crash-safe files, so a process of another version may read them.
const defVersion = 1

// appendStreamDef appends the beginning of a stream definition, the form in which files store a
// stream. A definition consists of a version, the length and the name of the tenant, and the labels
// in the syntax of Loki. The caller appends the labels.
func appendStreamDef(dst, tenant []byte) []byte {
	dst = append(dst, defVersion)
	dst = binary.AppendUvarint(dst, uint64(len(tenant)))
	return append(dst, tenant...)
}

// parseStreamDef returns the tenant and the labels of a definition. labels is a part of def. If the
// definition or its tenant name is invalid, ok is false.
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

// isPlainDef reports whether a definition certainly contains no character that Loki refuses in
// labels. Loki refuses U+FFFD and invalid UTF-8, even if they are escaped.
func isPlainDef(def []byte) bool {
	for i, c := range def {
		if c >= utf8.RuneSelf || c == '\\' && i+1 < len(def) && bytes.IndexByte([]byte(`xuU01234567`), def[i+1]) >= 0 {
			return false
		}
	}
	return true
}

// requoteLabels appends labels after quoting their values again with [appendQuoted]. Labels that
// cannot be parsed are appended unchanged.
func requoteLabels(dst, labels []byte) []byte {
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
	// fullPeriod is how long the records of a stream go to a spare stream after Loki has refused
	// the stream because of a limit of streams or because of its labels.
	fullPeriod = 10 * time.Minute
	// streamTimeout is the time after which records are refused if Loki accepts no stream for them.
	// After half an hour, Loki drops idle streams and has room for new ones, so the timeout is
	// longer.
	streamTimeout = time.Hour
)

// describe returns the labels and the tenant of s for error messages, with at most 200 bytes of
// labels.
func (s *stream) describe() string {
	if s.tenant == "" {
		return string(cutUTF8(s.labels, 200))
	}
	return fmt.Sprintf("%s of tenant %s", cutUTF8(s.labels, 200), s.tenant)
}

// AppendStream appends the definition of the stream with the given id. It implements
// [batch.Dictionary].
func (r *registry) AppendStream(dst []byte, id uint32) ([]byte, bool) {
	st := r.get(id)
	if st == nil {
		return dst, false
	}
	return append(dst, st.key...), true
}

// Stream returns the id of the stream with the given definition, which may come from another
// process. It creates the stream if necessary, even beyond the limit. If an earlier version has
// stored label values that Loki refuses, they are replaced. Stream implements [batch.Dictionary].
func (r *registry) Stream(def []byte) uint32 {
	if !isPlainDef(def) {
		if tenant, labels, ok := parseStreamDef(def); ok {
			def = requoteLabels(appendStreamDef(nil, []byte(tenant)), labels)
		}
	}
	st := r.add(def, true)
	if !st.broken {
		st.owner.markUsed()
	}
	return st.id
}

// recentStreams contains the last two streams of which Loki accepted records. Two streams are
// sufficient to determine whether Loki has recently accepted a stream other than a given one. All
// methods are safe for concurrent use.
type recentStreams struct {
	mu      sync.Mutex // guards the fields below; no other lock is acquired under it
	entries [2]struct {
		st *stream
		at time.Time
	}
}

// recentPeriod is how long a stream counts as recently accepted after Loki has accepted records of
// it.
const recentPeriod = 5 * time.Minute

// add is called at the time now, when Loki has accepted records of st.
func (l *recentStreams) add(st *stream, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entries[0].st != st {
		l.entries[1] = l.entries[0]
		l.entries[0].st = st
	}
	l.entries[0].at = now
}

// anyOther reports whether Loki has accepted records of a stream other than st within recentPeriod.
func (l *recentStreams) anyOther(st *stream, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.entries {
		if o.st != nil && o.st != st && now.Sub(o.at) < recentPeriod {
			return true
		}
	}
	return false
}
