package fluent

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/forebay-log/forebay/internal/msgpack"
)

const (
	// maxTags and maxTagText limit the number of tags in the tag table and their total length in
	// bytes, because tags are never removed from the table. After a limit is reached, a new tag is
	// stored in each of its records.
	maxTags    = 1 << 16
	maxTagText = 4 << 20
	// maxTagBytes is the length of the longest valid tag, in bytes.
	maxTagBytes = 1024
)

// ErrTag is wrapped by the error for an invalid tag. A tag is invalid if it is empty, longer than
// 1,024 bytes or not valid UTF-8, or if it contains a control character.
var ErrTag = errors.New("unusable tag")

// Special ids of streams (batch.Meta.Stream). The tag table belongs to the process, not to a
// Driver, because the records of one Driver may be sent by another, such as a fallback.
const (
	noTag      = 0 // the record gets Config.Tag of the Driver that sends it
	invalidTag = 1 // the stored definition of the stream is not a valid tag
	ownTag     = 2 // each record begins with its tag, a MessagePack string
	firstTag   = 3 // the first id in the tag table
)

// ownTagDef is the definition of the stream ownTag in files. It cannot be a tag, because it is a
// control character.
const ownTagDef = "\x00"

// A tagTable assigns ids to tags until it is full. Ids are stored in memory, in crash-safe files
// and in spools, so an id is never reused and a tag is never removed. If the table is full, a new
// tag is stored in each of its records instead. Such a tag is never added later, so that all its
// records have the same form.
//
// The field known is an immutable copy of the field all, so that a tag in known is found without a
// lock. The copy is replaced when as many lookups have missed it as there are tags, so that a
// lookup costs constant time on average. All methods are safe for concurrent use.
type tagTable struct {
	known atomic.Pointer[map[string]uint32] // part of the field all; equal to it if full is set
	names atomic.Pointer[[]string]          // names[i] is the tag with the id firstTag+i; the slice only grows
	full  atomic.Bool                       // set after known is complete; never reset

	mu     sync.Mutex        // guards the fields below; no other lock is acquired under it
	all    map[string]uint32 // ids by tag
	text   int               // total length in bytes of the tags in all; see maxTagText
	misses int               // number of lookups that missed known since it was replaced
	// found contains the tags that were read from files of earlier processes when the table was
	// full.
	found map[string]uint32
}

// tags is the tag table of the process.
var tags tagTable

// streamOf calls tagTable.streamOf for the tag table of the process.
func streamOf(tag string) uint32 { return tags.streamOf(tag) }

// streamOf returns the id of a valid tag, and assigns one if necessary. If the table is full, it
// returns ownTag for a tag that is not in the table.
func (t *tagTable) streamOf(tag string) uint32 {
	full := t.full.Load() // full is read before known, because known is complete once full is set
	if m := t.known.Load(); m != nil {
		if id, ok := (*m)[tag]; ok {
			return id
		}
	}
	if full {
		return ownTag
	}
	return t.add(tag)
}

// streamOf returns the id of a tag like tagTable.streamOf. If the tag is invalid, the error wraps
// ErrTag. The last tag is cached in s and compared without hashing.
func (s *valuer) streamOf(tag string) (uint32, error) {
	if tag == s.tag && tag != "" {
		return s.stream, nil
	}
	if m := tags.known.Load(); m != nil {
		if id, ok := (*m)[tag]; ok {
			s.tag, _ = tagOf(id)
			s.stream = id
			return id, nil
		}
	}
	if err := checkTag(tag); err != nil {
		return 0, err
	}
	id := streamOf(tag)
	if id != ownTag {
		// The string in the table is used, because the caller's string may be part of a large
		// one.
		s.tag, _ = tagOf(id)
		s.stream = id
	}
	return id, nil
}

// add implements streamOf for a tag that is not in known.
func (t *tagTable) add(tag string) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	id, ok := t.all[tag]
	switch {
	case ok:
	case t.full.Load():
		return ownTag
	default:
		if t.all == nil {
			t.all = map[string]uint32{}
		}
		tag = strings.Clone(tag) // a copy, because the caller's string may be part of a large one
		id = t.numberLocked(tag)
		t.all[tag] = id
		t.text += len(tag)
	}
	t.misses++
	full := len(t.all) >= maxTags || t.text > maxTagText-maxTagBytes
	if full || t.misses >= len(t.all) {
		t.misses = 0
		known := maps.Clone(t.all)
		t.known.Store(&known)
		t.full.Store(full)
	}
	return id
}

// numberLocked assigns the next id to tag. The caller holds t.mu and stores tag in a map.
func (t *tagTable) numberLocked(tag string) uint32 {
	var names []string
	if p := t.names.Load(); p != nil {
		names = *p
	}
	names = append(names, tag) // readers with the previous slice do not read the new element
	t.names.Store(&names)
	return uint32(firstTag + len(names) - 1)
}

// find returns the id of a tag from the file of an earlier process. It assigns an id even if the
// table is full, because the records in the file do not contain the tag.
func (t *tagTable) find(tag string) uint32 {
	if id := t.streamOf(tag); id != ownTag {
		return id
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	id, ok := t.found[tag]
	if !ok {
		if t.found == nil {
			t.found = map[string]uint32{}
		}
		id = t.numberLocked(tag)
		t.found[tag] = id
	}
	return id
}

// tagOf returns the tag with the given id. It returns false if the table has no such id.
func tagOf(id uint32) (string, bool) {
	p := tags.names.Load()
	if p == nil || id < firstTag || int64(id)-firstTag >= int64(len(*p)) {
		return "", false
	}
	return (*p)[id-firstTag], true
}

// splitTag splits a record of stream ownTag into the tag, which is a MessagePack string, and the
// entry, which is part of rec. It returns false for any other record, because such a record begins
// with an array.
func splitTag(rec []byte) (tag string, entry []byte, ok bool) {
	t, rest, err := msgpack.Next(rec)
	if err != nil || t.Kind != msgpack.Str || checkTag(string(t.Bytes)) != nil {
		return "", rec, false
	}
	return string(t.Bytes), rest, true
}

// checkTag returns an error that wraps ErrTag if tag is invalid. Because tags contain no control
// characters, ownTagDef is not a tag.
func checkTag(tag string) error {
	switch {
	case tag == "":
		return fmt.Errorf("fluent: %w: it is empty", ErrTag)
	case len(tag) > maxTagBytes:
		return fmt.Errorf("fluent: %w: it has %d bytes, but only %d are allowed", ErrTag, len(tag), maxTagBytes)
	case !utf8.ValidString(tag):
		return fmt.Errorf("fluent: %w: it is not UTF-8", ErrTag)
	}
	for i := range len(tag) {
		if tag[i] < ' ' || tag[i] == 0x7f {
			return fmt.Errorf("fluent: %w: it has a control character", ErrTag)
		}
	}
	return nil
}

// dictionary is the batch.Dictionary of the tag table. It maps the streams of Forward entries to
// tags.
type dictionary struct{}

// AppendStream appends the definition of a stream, which is its tag. For records that contain their
// tags, the definition is a zero byte. For stream 0, which has the tag of the Driver, it is empty.
// AppendStream returns false for an unknown stream. It implements batch.Dictionary.
func (dictionary) AppendStream(dst []byte, id uint32) ([]byte, bool) {
	switch id {
	case noTag:
		return dst, true
	case ownTag:
		return append(dst, ownTagDef...), true
	}
	tag, ok := tagOf(id)
	return append(dst, tag...), ok
}

// Stream returns the id of the stream with the given definition, which AppendStream has made in
// this or an earlier process. An invalid definition gets an id without a tag, and its records are
// refused. It implements batch.Dictionary.
func (dictionary) Stream(def []byte) uint32 {
	if len(def) == 0 {
		return noTag
	}
	if string(def) == ownTagDef {
		return ownTag
	}
	if checkTag(string(def)) != nil {
		return invalidTag
	}
	return tags.find(string(def))
}
