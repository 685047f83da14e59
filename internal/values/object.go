package values

import "log/slog"

// AttrScratch is the memory to which AttrAppenders append their attributes. It is used as a stack,
// because an attribute may itself be an AttrAppender. Each encode.Record has one.
type AttrScratch struct {
	Attrs []slog.Attr
	more  int // capacity to allocate next time, because the current memory was too small
}

const (
	minScratch = 16
	maxScratch = 1024 // maximum capacity, in attributes; larger slices are not reused
)

// Collect returns the attributes of o. After writing them, the caller passes mark to Release. If
// the method panics, fault describes the panic.
func (s *AttrScratch) Collect(o AttrAppender) (attrs []slog.Attr, mark int, fault string) {
	mark = len(s.Attrs)
	if s.Attrs == nil || mark == 0 && s.more > cap(s.Attrs) {
		s.Attrs = make([]slog.Attr, 0, max(minScratch, s.more))
	}
	defer func() {
		if p := recover(); p != nil {
			clear(s.Attrs[mark:cap(s.Attrs)])
			attrs, fault = nil, FaultText(o, p)
		}
	}()
	room := s.Attrs[mark:mark:cap(s.Attrs)]
	attrs = o.AppendAttrs(room)
	if len(attrs) <= cap(room) && len(attrs) > 0 && &attrs[0] == &room[:1][0] {
		s.Attrs = s.Attrs[:mark+len(attrs)]
	} else if len(attrs) > cap(room) {
		// The returned slice is not stored: it may belong to o, and must not be cleared or reused
		// here.
		s.more = min(maxScratch, mark+len(attrs))
	}
	return attrs, mark, ""
}

// Release removes and clears all attributes collected since the call of Collect that returned mark.
func (s *AttrScratch) Release(mark int) {
	clear(s.Attrs[mark:])
	s.Attrs = s.Attrs[:mark]
}

// cache returns the cache of the record, or a new one if there is none.
func (w *Walker) cache() *Cache {
	if w.Cache == nil {
		w.Cache = new(Cache) // WithAttrs encodes without a record
	}
	return w.Cache
}

// object appends an AttrAppender as a group.
func (w *Walker) object(dst []byte, key string, o AttrAppender) []byte {
	scratch := &w.cache().Scratch
	attrs, mark, fault := scratch.Collect(o)
	if fault != "" {
		return w.text(w.key(dst, key), fault)
	}
	dst = w.group(dst, key, attrs, true)
	scratch.Release(mark)
	return dst
}
