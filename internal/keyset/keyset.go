// Package keyset makes the keys of an object unique: a later key that an earlier one equals gets
// a "_" for each before it, as in {"a":1,"a_":2,"a__":3}. Elasticsearch refuses a document with
// a key twice, and OTLP forbids one.
package keyset

import (
	"log/slog"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"unicode/utf8"
)

const (
	marks      = "________________"
	indexAbove = 64 // keys of an object that are compared one by one
)

// seed differs from process to process. Two keys with one hash cost the later one a "_", no more.
var seed = rand.Uint64()

// hash returns a number that differs from key to key.
func hash[T string | []byte](key T) uint64 {
	h := seed ^ uint64(len(key))
	for len(key) >= 8 {
		h = mix(h ^ (uint64(key[0]) | uint64(key[1])<<8 | uint64(key[2])<<16 | uint64(key[3])<<24 |
			uint64(key[4])<<32 | uint64(key[5])<<40 | uint64(key[6])<<48 | uint64(key[7])<<56))
		key = key[8:]
	}
	var rest uint64 // all other bytes, some of them twice
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

// Keys are keys of an object, as hashes. The zero value has none. A copy is independent if it is
// made by Clone.
type Keys struct {
	mask   uint64 // of their bits
	hashes []uint64
}

// Distinct reports whether attrs, which come next in an object with the keys k, can all keep their
// names. It may return false although they can; a [Set] then decides.
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
		if mask&b != 0 && (k.has(key) || slices.ContainsFunc(attrs[:i], func(a slog.Attr) bool { return a.Key == key })) {
			return false
		}
		mask |= b
	}
	return true
}

// Clone returns a copy.
func (k Keys) Clone() Keys { return Keys{k.mask, slices.Clone(k.hashes)} }

func (k *Keys) has(key string) bool {
	return k.mask&bit(key) != 0 && slices.Contains(k.hashes, hash(key))
}

// bit returns a bit of a mask that most other keys do not have.
func bit[T string | []byte](key T) uint64 {
	n := len(key)
	if n == 0 {
		return 1
	}
	return 1 << ((uint64(n)<<16 | uint64(key[0])<<8 | uint64(key[n-1])) * 0x9e3779b97f4a7c15 >> 58)
}

// A Set is the keys of objects within each other, of which the innermost is current. The zero
// value has no object. It is not for concurrent use.
type Set struct {
	hashes  []uint64 // of all objects, the outermost first
	objects []object
	text    []byte
}

// An object is one that is open.
type object struct {
	mask   uint64
	from   int                 // in hashes
	before *Keys               // further keys of it; nil: none
	index  map[uint64]struct{} // of hashes, if there are many
	next   int                 // number of the next name beyond marks
	list   bool                // it is a list, which has no keys
}

// Open begins an object within the current one. before are keys that it has already; nil: none.
func (s *Set) Open(before *Keys) {
	s.objects = append(s.objects, object{from: len(s.hashes), before: before})
}

// Close ends the current object. The one around it is current again.
func (s *Set) Close() {
	last := len(s.objects) - 1
	s.hashes = s.hashes[:s.objects[last].from]
	s.objects[last] = object{}
	s.objects = s.objects[:last]
}

// Depth returns how many objects are open.
func (s *Set) Depth() int { return len(s.objects) }

// CloseTo closes objects until depth are open.
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

// Name adds key to the current object and returns its name there.
func (s *Set) Name(key string) string {
	o := &s.objects[len(s.objects)-1]
	if h := hash(key); !s.taken(o, bit(key), h) {
		s.add(o, bit(key), h)
		return key
	}
	s.text = append(s.text[:0], key...)
	return key + s.suffix(o)
}

// Suffix is Name for a key in bytes: it returns what follows the key in its name.
func (s *Set) Suffix(key []byte) string {
	o := &s.objects[len(s.objects)-1]
	if h := hash(key); !s.taken(o, bit(key), h) {
		s.add(o, bit(key), h)
		return ""
	}
	s.text = append(s.text[:0], key...)
	return s.suffix(o)
}

// Drop removes the key that was added last to the current object.
func (s *Set) Drop() {
	last := len(s.hashes) - 1
	delete(s.objects[len(s.objects)-1].index, s.hashes[last])
	s.hashes = s.hashes[:last]
}

// suffix adds the key in s.text, which is taken, under another name, and returns what follows
// the key in it.
func (s *Set) suffix(o *object) string {
	n := len(s.text)
	for i := range marks {
		s.text = append(s.text, marks[0])
		if h := hash(s.text); !s.taken(o, bit(s.text), h) {
			s.add(o, bit(s.text), h)
			return marks[:i+1]
		}
	}
	for o.next = max(o.next, len(marks)+1); ; o.next++ { // more marks would make long objects far longer
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
