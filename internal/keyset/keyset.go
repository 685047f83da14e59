// Package keyset makes the keys of an object unique: a later key that an earlier one equals gets
// a "_" for each before it, as in {"a":1,"a_":2,"a__":3}. Elasticsearch refuses a document with
// a key twice, and OTLP forbids one.
package keyset

import (
	"hash/maphash"
	"slices"
	"strconv"
)

const (
	marks      = "________________"
	indexAbove = 64 // keys of an object that are compared one by one
)

var seed = maphash.MakeSeed()

// Keys are keys of an object, as hashes. The zero value has none. A copy is independent if it is
// made by Clone.
type Keys struct {
	mask   uint64
	hashes []uint64
}

// Clone returns a copy.
func (k Keys) Clone() Keys { return Keys{k.mask, slices.Clone(k.hashes)} }

func (k *Keys) has(h uint64) bool { return k.mask&bit(h) != 0 && slices.Contains(k.hashes, h) }

func bit(h uint64) uint64 { return 1 << (h & 63) }

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
	before *Keys               // keys that it has besides; nil: none
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

// AppendTo adds the keys of the current object to k.
func (s *Set) AppendTo(k *Keys) {
	for _, h := range s.hashes[s.objects[len(s.objects)-1].from:] {
		k.mask |= bit(h)
		k.hashes = append(k.hashes, h)
	}
}

// Name adds key to the current object and returns its name there.
func (s *Set) Name(key string) string {
	o := &s.objects[len(s.objects)-1]
	if h := maphash.String(seed, key); !s.taken(o, h) {
		s.add(o, h)
		return key
	}
	s.text = append(s.text[:0], key...)
	return key + s.suffix(o)
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
		if h := maphash.Bytes(seed, s.text); !s.taken(o, h) {
			s.add(o, h)
			return marks[:i+1]
		}
	}
	for o.next = max(o.next, len(marks)+1); ; o.next++ { // more marks would make long objects far longer
		suffix := "_" + strconv.Itoa(o.next)
		if h := maphash.Bytes(seed, append(s.text[:n], suffix...)); !s.taken(o, h) {
			s.add(o, h)
			return suffix
		}
	}
}

func (s *Set) taken(o *object, h uint64) bool {
	switch {
	case o.before != nil && o.before.has(h):
		return true
	case o.mask&bit(h) == 0:
		return false
	case o.index != nil:
		_, is := o.index[h]
		return is
	}
	return slices.Contains(s.hashes[o.from:], h)
}

func (s *Set) add(o *object, h uint64) {
	o.mask |= bit(h)
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
