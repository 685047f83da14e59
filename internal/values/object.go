package values

import (
	"log/slog"
	"reflect"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// AttrScratch is the memory that AttrAppenders append to. It is used as a stack, since
// their attributes can be AttrAppenders in turn. It is owned by a Record.
type AttrScratch struct {
	Attrs []slog.Attr
	more  int // the next capacity if an AttrAppender ran out of room
}

const (
	minScratch = 16
	maxScratch = 1024 // attributes; larger slices are left to the garbage collector
)

// Collect returns the attributes of o and the previous end of the scratch, for Release. If
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
		// The returned slice is not adopted: it may belong to o, and must not be cleared
		// and reused here.
		s.more = min(maxScratch, mark+len(attrs))
	}
	return attrs, mark, ""
}

// Release clears everything collected since mark.
func (s *AttrScratch) Release(mark int) {
	clear(s.Attrs[mark:])
	s.Attrs = s.Attrs[:mark]
}

// scratch returns the scratch of the record.
func (w *Walker) scratch() *AttrScratch {
	if w.Cache == nil {
		w.Cache = new(Cache) // With has no record
	}
	return &w.Cache.Scratch
}

// object appends an AttrAppender as a group.
func (w *Walker) object(dst []byte, key string, o AttrAppender) []byte {
	scratch := w.scratch()
	attrs, mark, fault := scratch.Collect(o)
	if fault != "" {
		return w.text(w.key(dst, key), fault)
	}
	dst = w.group(dst, key, attrs, true)
	scratch.Release(mark)
	return dst
}

// objects describes whether a type is a slice of AttrAppenders.
type objects uint8

const (
	notObjects objects = iota
	objectsByValue
	objectsByAddress // pointers to the elements are AttrAppenders
)

var appenderType = reflect.TypeFor[AttrAppender]()

// objectsOf returns the kind of slice that t, or the type t points to, is.
func objectsOf(t reflect.Type) objects {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Slice {
		return notObjects
	}
	switch e := t.Elem(); {
	case e.Implements(appenderType):
		return objectsByValue
	case reflect.PointerTo(e).Implements(appenderType):
		return objectsByAddress
	}
	return notObjects
}

// array appends a slice of AttrAppenders, or a pointer to one.
func (w *Walker) array(dst []byte, v any, kind objects) []byte {
	rv := reflect.ValueOf(v)
	if rv.Kind() == reflect.Pointer {
		if rv.IsNil() {
			return w.null(dst)
		}
		rv = rv.Elem()
	}
	if rv.IsNil() {
		return w.null(dst)
	}
	start, form := len(dst), w.Form
	w.Form = FormJSON
	dst = append(dst, '[')
	for i := range rv.Len() {
		dst = jsontext.Comma(dst)
		e := rv.Index(i)
		if kind == objectsByAddress {
			e = e.Addr()
		}
		o, _ := e.Interface().(AttrAppender)
		dst = w.element(dst, o)
	}
	dst = append(dst, ']')
	w.Form = form
	return w.quote(dst, start)
}

// element appends an AttrAppender within another value.
func (w *Walker) element(dst []byte, o AttrAppender) []byte {
	if o == nil {
		return w.null(dst)
	}
	if fault := w.bounded(); fault != "" {
		return w.text(dst, fault)
	}
	scratch := w.scratch()
	attrs, mark, fault := scratch.Collect(o)
	if fault != "" {
		return w.text(dst, fault)
	}
	dst = w.members(dst, attrs)
	scratch.Release(mark)
	return dst
}

// members appends attributes as an object within another value.
func (w *Walker) members(dst []byte, attrs []slog.Attr) []byte {
	if fault := w.bounded(); fault != "" {
		return w.text(dst, fault)
	}
	w.spent++
	w.depth++
	dst = append(w.Attrs(append(dst, '{'), attrs), '}')
	w.depth--
	return dst
}

// bounded returns the text that replaces a further group, or "" if the limit is not
// reached.
func (w *Walker) bounded() string {
	switch {
	case w.spent >= maxExpansions:
		return tooMany
	case w.depth >= maxGroups:
		return tooDeep
	}
	return ""
}
