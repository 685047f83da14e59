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
	// maxTags limits the number of tags in the tag table, and maxTagText their total length in
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

// These ids of streams (batch.Meta.Stream) have a special meaning. The tag table belongs to the
// process and not to a Driver, because the records of one Driver may be sent by another, such as a
// fallback.
const (
	noTag      = 0 // the record gets Config.Tag of the Driver that sends it
	invalidTag = 1 // the stored definition of the stream is not a valid tag
	ownTag     = 2 // each record begins with its tag, a MessagePack string
	firstTag   = 3 // the first id in the tag table
)

// ownTagDef represents the stream ownTag in a spool or crash-safe file, in which other streams are
// represented by their tags. It is a control character, so it is not a valid tag.
const ownTagDef = "\x00"

// A tagTable assigns ids to tags until it is full. Ids are stored in memory, in crash-safe files
// and in spools, so an id is never reused and a tag is never removed. After the table is full, a
// new tag is stored in each of its records instead. Such a tag is never added later, so that all
// its records have the same form.
//
// The field known is an immutable copy of the field all. A tag in this copy is found without a
// lock. Each lookup of another tag counts as a miss. When there are as many misses as tags, the
// copy is replaced. Therefore a lookup costs constant time on average. All methods are safe for
// concurrent use.
type tagTable struct {
	known atomic.Pointer[map[string]uint32] // part of the field all; equal to it if full is set
	names atomic.Pointer[[]string]          // names[i] is the tag with the id firstTag+i; the slice only grows
	full  atomic.Bool                       // set after known is complete; never reset

	mu     sync.Mutex        // guards the fields below; no other lock is acquired under it
	all    map[string]uint32 // ids by tag
	text   int               // total length in bytes of the tags in all; see maxTagText
	misses int               // number of lookups that missed known since it was replaced
	// The map found contains the tags that were read from files of earlier processes when the table
	// was already full.
	found map[string]uint32
}

// tags is the tag table of the process.
var tags tagTable

// streamOf calls the method streamOf of the tag table of the process.
func streamOf(tag string) uint32 { return tags.streamOf(tag) }

// streamOf returns the id of a valid tag, and assigns one if the tag is new. If the table is full,
// it returns ownTag for a new tag.
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

// streamOf returns the id of a tag, like the method of tagTable. If the tag is invalid, the error
// wraps ErrTag. The last tag is cached in s and compared without hashing.
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
		// The string in the table is cached, because the caller's string may be part of a large
		// one.
		s.tag, _ = tagOf(id)
		s.stream = id
	}
	return id, nil
}

// add implements streamOf for a tag that is not in t.known.
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

// find returns the id of a tag from the file of an earlier process. The records in the file do not
// contain the tag, so it receives an id even if the table is full.
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

// splitTag splits a record of the stream ownTag into the tag, which is a MessagePack string, and
// the entry, which is part of rec. Any other record begins with an array; ok is then false.
func splitTag(rec []byte) (tag string, entry []byte, ok bool) {
	t, rest, err := msgpack.Next(rec)
	if err != nil || t.Kind != msgpack.Str || checkTag(string(t.Bytes)) != nil {
		return "", rec, false
	}
	return string(t.Bytes), rest, true
}

// checkTag returns an error that wraps ErrTag if tag is invalid. Tags may not contain control
// characters, so ownTagDef is not a tag.
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

// The dictionary maps the streams of Forward entries to tags, with the tag table of the process. It
// implements batch.Dictionary.
type dictionary struct{}

// AppendStream appends the definition of a stream, the form in which files store it. The definition
// is the tag. It is a zero byte for records that contain their tags, and empty for stream 0, whose
// tag is that of the Driver. AppendStream returns false for an unknown stream. It implements
// batch.Dictionary.
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

// Stream returns the id of a stream from its definition, which AppendStream has written in this or
// an earlier process. An invalid definition gets an id without a tag, and its records are rejected.
// It implements batch.Dictionary.
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
