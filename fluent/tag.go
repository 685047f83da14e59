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
)

const (
	// maxTags is how many different tags a process can use. Tags are for routing;
	// what is as many as users or requests belongs into the record.
	maxTags = 1 << 16
	// maxTagBytes is the length of the longest tag.
	maxTagBytes = 1024
)

var (
	// ErrTag is wrapped by the error of a tag that cannot be used.
	ErrTag = errors.New("unusable tag")

	errTooManyTags = fmt.Errorf("fluent: %w: the process uses %d tags already; tags must not hold values such as user ids", ErrTag, maxTags)
)

// Streams of the tag table. The table is the process's, not a sink's: an entry
// may go to another sink (a fallback), and its number must mean the same there.
const (
	noTag      = 0 // the sink's own tag
	invalidTag = 1 // a definition that could not be read
	firstTag   = 2
)

// A tagTable gives numbers to tags. Looking one up takes no lock once it has been
// looked up a few times: known is replaced as a whole, after as many lookups that
// it did not answer as there are tags.
type tagTable struct {
	known atomic.Pointer[map[string]uint32]
	names atomic.Pointer[[]string] // by number, from firstTag

	mu     sync.Mutex // guards the rest
	all    map[string]uint32
	misses int
}

var tags tagTable

// streamOf returns the number of a tag and gives one out if there is none.
func streamOf(tag string) (uint32, error) {
	if m := tags.known.Load(); m != nil {
		if id, ok := (*m)[tag]; ok {
			return id, nil
		}
	}
	return tags.add(tag)
}

// streamOf is [streamOf], which most often is asked for the same tag again.
func (s *valuer) streamOf(tag string) (uint32, error) {
	if tag == s.tag && tag != "" {
		return s.stream, nil
	}
	id, err := streamOf(tag)
	if err == nil {
		s.tag, _ = tagOf(id) // not the caller's, which may be a part of something large
		s.stream = id
	}
	return id, err
}

func (t *tagTable) add(tag string) (uint32, error) {
	if err := checkTag(tag); err != nil {
		return 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	id, ok := t.all[tag]
	if !ok {
		var names []string
		if p := t.names.Load(); p != nil {
			names = *p
		}
		if len(names) >= maxTags {
			return 0, errTooManyTags
		}
		if t.all == nil {
			t.all = map[string]uint32{}
		}
		id = uint32(firstTag + len(names))
		tag = strings.Clone(tag) // it may be a part of something large
		names = append(names, tag)
		t.names.Store(&names)
		t.all[tag] = id
	}
	if t.misses++; t.misses >= len(t.all) {
		t.misses = 0
		known := maps.Clone(t.all)
		t.known.Store(&known)
	}
	return id, nil
}

// tagOf returns the tag of a stream.
func tagOf(id uint32) (string, bool) {
	p := tags.names.Load()
	if p == nil || id < firstTag || int64(id)-firstTag >= int64(len(*p)) {
		return "", false
	}
	return (*p)[id-firstTag], true
}

// checkTag says what is wrong with a tag.
func checkTag(tag string) error {
	switch {
	case tag == "":
		return fmt.Errorf("fluent: %w: it is empty", ErrTag)
	case len(tag) > maxTagBytes:
		return fmt.Errorf("fluent: %w: it has %d bytes, %d are allowed", ErrTag, len(tag), maxTagBytes)
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

// Tags returns the dictionary of the streams of Forward entries: a stream is a
// tag. It is the same for all sinks of the process.
func Tags() batch.Dictionary { return dictionary{} }

type dictionary struct{}

// AppendStream appends the tag. Stream 0, the sink's own tag, is no bytes.
func (dictionary) AppendStream(dst []byte, id uint32) ([]byte, bool) {
	if id == noTag {
		return dst, true
	}
	tag, ok := tagOf(id)
	return append(dst, tag...), ok
}

// Stream returns the number of a tag.
func (dictionary) Stream(def []byte) uint32 {
	if len(def) == 0 {
		return noTag
	}
	id, err := streamOf(string(def))
	if err != nil {
		return invalidTag
	}
	return id
}
