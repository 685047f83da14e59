package fluent

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/msgpack"
)

const (
	// maxTags and maxTagText limit the number of tags in the table and the sum of their
	// lengths in bytes. Further tags are stored in their records.
	maxTags    = 1 << 16
	maxTagText = 4 << 20
	// maxTagBytes is the length of the longest tag.
	maxTagBytes = 1024
)

// ErrTag is wrapped by the error for an invalid tag: one that is empty, longer than 1,024 bytes,
// not valid UTF-8, or contains a control character.
var ErrTag = errors.New("unusable tag")

// Streams of the tag table. The table belongs to the process, not to a Driver: an entry may go to
// another Driver (a fallback), and its number must have the same meaning there.
const (
	noTag      = 0 // the tag of the Driver
	invalidTag = 1 // a definition that could not be read
	ownTag     = 2 // each record begins with its tag, see splitTag
	firstTag   = 3
)

// ownTagDef is the definition of ownTag. No tag has control characters.
const ownTagDef = "\x00"

// A tagTable assigns numbers to tags, until it is full. Numbers are never reused, because they
// are stored in memory, in crash files and in spools. Therefore the table never removes a tag.
// When it is full, further tags are stored in the records instead. A tag that is not in a full
// table is never added, so that all its records have the same form.
//
// After a few lookups of a tag, further ones need no lock: known is replaced as a whole, after as
// many failed lookups as there are tags.
type tagTable struct {
	known atomic.Pointer[map[string]uint32]
	names atomic.Pointer[[]string] // by number, from firstTag
	full  atomic.Bool              // known is complete

	mu     sync.Mutex // guards the fields below
	all    map[string]uint32
	text   int // sum of the lengths
	misses int
	// found are tags from files of earlier processes that were read when the table was full.
	found map[string]uint32
}

var tags tagTable

// streamOf returns the number of a valid tag, and assigns one if necessary. If the table is full,
// it returns ownTag.
func streamOf(tag string) uint32 { return tags.streamOf(tag) }

func (t *tagTable) streamOf(tag string) uint32 {
	full := t.full.Load() // before known
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

// streamOf is [streamOf] for a tag that may be invalid. It is fastest for the tag of the previous
// call.
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
		s.tag, _ = tagOf(id) // not the caller's string, which may be a part of a large one
		s.stream = id
	}
	return id, nil
}

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
		tag = strings.Clone(tag) // it may be a part of a large string
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

// numberLocked assigns a number to tag.
func (t *tagTable) numberLocked(tag string) uint32 {
	var names []string
	if p := t.names.Load(); p != nil {
		names = *p
	}
	names = append(names, tag)
	t.names.Store(&names)
	return uint32(firstTag + len(names) - 1)
}

// find returns the number of a tag from the file of an earlier process. It always assigns one,
// because its records do not contain the tag.
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

// tagOf returns the tag of a stream.
func tagOf(id uint32) (string, bool) {
	p := tags.names.Load()
	if p == nil || id < firstTag || int64(id)-firstTag >= int64(len(*p)) {
		return "", false
	}
	return (*p)[id-firstTag], true
}

// splitTag removes the tag from a record of ownTag: a string before the entry. It returns false
// for any other record, which is an entry from its first byte.
func splitTag(rec []byte) (tag string, entry []byte, ok bool) {
	t, rest, err := msgpack.Next(rec)
	if err != nil || t.Kind != msgpack.Str || checkTag(string(t.Bytes)) != nil {
		return "", rec, false
	}
	return string(t.Bytes), rest, true
}

// checkTag returns an error if a tag is invalid.
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

// Tags returns the dictionary of the streams of Forward entries, which maps streams to tags. All
// Drivers of the process share it.
func Tags() batch.Dictionary { return dictionary{} }

type dictionary struct{}

// AppendStream appends the tag. For stream 0, the tag of the Driver, it appends nothing; for
// records that contain their tags, a zero byte.
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

// Stream returns the number of a tag.
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
