// Package keyset makes the keys of an object unique by appending "_" to repeated keys, as in
// {"a":1,"a_":2,"a__":3}. Elasticsearch rejects documents with duplicate keys, and OTLP forbids
// them.
package keyset

import (
	"log/slog"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"unicode/utf8"
)

const (
	marks      = "________________"
	indexAbove = 64 // number of keys of an object above which a map is used
)

// seed is random, so that an attacker cannot choose keys with equal hashes. A key with the hash of
// an earlier key gets an unnecessary "_", which does no harm.
var seed = rand.Uint64()

// hash returns the hash of a key. Different keys almost always have different hashes.
func hash[T string | []byte](key T) uint64 {
	h := seed ^ uint64(len(key))
	for len(key) >= 8 {
		h = mix(h ^ (uint64(key[0]) | uint64(key[1])<<8 | uint64(key[2])<<16 | uint64(key[3])<<24 |
			uint64(key[4])<<32 | uint64(key[5])<<40 | uint64(key[6])<<48 | uint64(key[7])<<56))
		key = key[8:]
	}
	var rest uint64 // the remaining bytes, possibly with some bytes that are already included
	switch n := len(key); {
	case n >= 4:
		rest = uint64(key[0]) | uint64(key[1])<<8 | uint64(key[2])<<16 | uint64(key[3])<<24 |
			uint64(key[n-4])<<32 | uint64(key[n-3])<<40 | uint64(key[n-2])<<48 | uint64(key[n-1])<<56
	case n > 0:
		rest = uint64(key[0]) | uint64(key[n>>1])<<8 | uint64(key[n-1])<<16
	}
	return mix(h ^ rest)
}

func mix(x uint64) uint64 {
	hi, lo := bits.Mul64(x^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	return hi ^ lo
}

// Keys contains the keys of an object as hashes. The zero value has no keys. Use Clone to make an
// independent copy.
type Keys struct {
	mask   uint64 // bitwise OR of bit(key) for all keys
	hashes []uint64
}

// Distinct reports whether attrs can be added to an object with the keys k without repeating a key.
// In rare cases it returns false although no key is repeated, but never the reverse. A [Set] gives
// the exact answer.
func (k *Keys) Distinct(attrs []slog.Attr) bool {
	mask := k.mask
	if len(attrs) > indexAbove {
		return false
	}
	for i := range attrs {
		key := attrs[i].Key
		var all byte
		for j := range len(key) {
			all |= key[j]
		}
		if all == 0 || all >= utf8.RuneSelf && !utf8.ValidString(key) {
			return false
		}
		b := bit(key)
		if mask&b != 0 && (k.Has(key) || slices.ContainsFunc(attrs[:i], func(a slog.Attr) bool { return a.Key == key })) {
			return false
		}
		mask |= b
	}
	return true
}

// Clone returns a copy that shares no memory with k.
func (k Keys) Clone() Keys { return Keys{k.mask, slices.Clone(k.hashes)} }

// With returns a copy that also has the given keys.
func (k Keys) With(keys ...string) Keys {
	k = k.Clone()
	for _, key := range keys {
		k.mask |= bit(key)
		k.hashes = append(k.hashes, hash(key))
	}
	return k
}

// Has reports whether key is one of k.
func (k *Keys) Has(key string) bool {
	return k.mask&bit(key) != 0 && slices.Contains(k.hashes, hash(key))
}

// bit returns a mask with one bit set, chosen by the key. Most other keys have a different bit.
func bit[T string | []byte](key T) uint64 {
	n := len(key)
	if n == 0 {
		return 1
	}
	return 1 << ((uint64(n)<<16 | uint64(key[0])<<8 | uint64(key[n-1])) * 0x9e3779b97f4a7c15 >> 58)
}

// A Set contains the keys of nested objects. The innermost object is the current one. The zero
// value has no object. It is not safe for concurrent use.
type Set struct {
	hashes  []uint64 // hashes of the keys of all open objects, beginning with the outermost object
	objects []object
	text    []byte
}

// An object is a JSON object or list that is open.
type object struct {
	mask   uint64
	from   int                 // index in Set.hashes of its first key
	before *Keys               // keys that the object had before Open, or nil
	index  map[uint64]struct{} // hashes of its keys, if there are many
	next   int                 // next number to append instead of underscores
	list   bool                // the value is a list, which has no keys
}

// Open begins an object within the current one. before, if not nil, contains keys that the object
// already has.
func (s *Set) Open(before *Keys) {
	s.objects = append(s.objects, object{from: len(s.hashes), before: before})
}

// Close ends the current object. The enclosing one becomes current.
func (s *Set) Close() {
	last := len(s.objects) - 1
	s.hashes = s.hashes[:s.objects[last].from]
	s.objects[last] = object{}
	s.objects = s.objects[:last]
}

// sets is the pool of Sets without open objects.
var sets = sync.Pool{New: func() any { return new(Set) }}

// Get returns a Set from a pool. No object is open in it. The caller must call Free.
func Get() *Set { return sets.Get().(*Set) }

// Free closes all objects and returns s to the pool.
func (s *Set) Free() {
	s.CloseTo(0)
	sets.Put(s)
}

// Has reports whether the current object has key.
func (s *Set) Has(key string) bool {
	return s.taken(&s.objects[len(s.objects)-1], bit(key), hash(key))
}

// Add adds key to the current object, which must not have it.
func (s *Set) Add(key string) { s.add(&s.objects[len(s.objects)-1], bit(key), hash(key)) }

// Depth returns the number of open objects.
func (s *Set) Depth() int { return len(s.objects) }

// CloseTo closes objects until depth objects are open.
func (s *Set) CloseTo(depth int) {
	for len(s.objects) > depth {
		s.Close()
	}
}

// AppendTo adds the keys of the current object to k.
func (s *Set) AppendTo(k *Keys) {
	o := &s.objects[len(s.objects)-1]
	k.mask |= o.mask
	k.hashes = append(k.hashes, s.hashes[o.from:]...)
}

// Name adds key to the current object and returns it, with a suffix if that is necessary to make it
// unique.
func (s *Set) Name(key string) string {
	o := &s.objects[len(s.objects)-1]
	if h := hash(key); !s.taken(o, bit(key), h) {
		s.add(o, bit(key), h)
		return key
	}
	s.text = append(s.text[:0], key...)
	return key + s.suffix(o)
}

// Suffix adds key to the current object and returns the suffix that makes it unique. The suffix is
// usually "".
func (s *Set) Suffix(key []byte) string {
	o := &s.objects[len(s.objects)-1]
	if h := hash(key); !s.taken(o, bit(key), h) {
		s.add(o, bit(key), h)
		return ""
	}
	s.text = append(s.text[:0], key...)
	return s.suffix(o)
}

// Drop removes the last added key from the current object.
func (s *Set) Drop() {
	last := len(s.hashes) - 1
	delete(s.objects[len(s.objects)-1].index, s.hashes[last])
	s.hashes = s.hashes[:last]
}

// suffix is called if the object already has the key in s.text. It adds the key with a suffix that
// makes it unique, and returns the suffix.
func (s *Set) suffix(o *object) string {
	n := len(s.text)
	for i := range marks {
		s.text = append(s.text, marks[0])
		if h := hash(s.text); !s.taken(o, bit(s.text), h) {
			s.add(o, bit(s.text), h)
			return marks[:i+1]
		}
	}
	for o.next = max(o.next, len(marks)+1); ; o.next++ { // from here on, numbers replace underscores, because many underscores would make an object much longer
		suffix := "_" + strconv.Itoa(o.next)
		s.text = append(s.text[:n], suffix...)
		if h := hash(s.text); !s.taken(o, bit(s.text), h) {
			s.add(o, bit(s.text), h)
			return suffix
		}
	}
}

func (s *Set) taken(o *object, bit, h uint64) bool {
	switch {
	case o.before != nil && o.before.mask&bit != 0 && slices.Contains(o.before.hashes, h):
		return true
	case o.mask&bit == 0:
		return false
	case o.index != nil:
		_, is := o.index[h]
		return is
	}
	return slices.Contains(s.hashes[o.from:], h)
}

func (s *Set) add(o *object, bit, h uint64) {
	o.mask |= bit
	s.hashes = append(s.hashes, h)
	switch {
	case o.index != nil:
		o.index[h] = struct{}{}
	case len(s.hashes)-o.from > indexAbove:
		o.index = make(map[uint64]struct{}, 4*indexAbove)
		for _, h := range s.hashes[o.from:] {
			o.index[h] = struct{}{}
		}
	}
}
