package encode

import (
	"log/slog"
	"reflect"
	"sync"
)

// attrPool holds what AttrAppenders append to.
var attrPool = sync.Pool{New: func() any { s := make([]slog.Attr, 0, 16); return &s }}

// collect returns the attributes of o in borrowed memory, for putAttrs, or a
// text that says why there are none.
func collect(o AttrAppender) (attrs *[]slog.Attr, fault string) {
	defer func() {
		if p := recover(); p != nil {
			attrs, fault = nil, faultText(o, p)
		}
	}()
	attrs = attrPool.Get().(*[]slog.Attr)
	*attrs = o.AppendAttrs((*attrs)[:0])
	return attrs, ""
}

func putAttrs(attrs *[]slog.Attr) {
	if cap(*attrs) > 1024 {
		return
	}
	clear(*attrs)
	*attrs = (*attrs)[:0]
	attrPool.Put(attrs)
}

// object appends an AttrAppender as a group.
func (w *walker) object(dst []byte, key string, o AttrAppender) []byte {
	attrs, fault := collect(o)
	if attrs == nil {
		return w.text(w.key(dst, key), fault)
	}
	dst = w.group(dst, key, *attrs, true)
	putAttrs(attrs)
	return dst
}

// objects says whether a type is a slice of AttrAppenders.
type objects uint8

const (
	notObjects objects = iota
	objectsByValue
	objectsByAddress // it is the pointers to the elements that are AttrAppenders
)

var appenderType = reflect.TypeFor[AttrAppender]()

// objectsOf returns what t, or what it points to, is a slice of.
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
func (w *walker) array(dst []byte, v any, kind objects) []byte {
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
	start, form := len(dst), w.form
	w.form = formJSON
	dst = append(dst, '[')
	for i := range rv.Len() {
		dst = comma(dst)
		e := rv.Index(i)
		if kind == objectsByAddress {
			e = e.Addr()
		}
		o, _ := e.Interface().(AttrAppender)
		dst = w.element(dst, o)
	}
	dst = append(dst, ']')
	w.form = form
	return w.quote(dst, start)
}

// element appends an AttrAppender within an array.
func (w *walker) element(dst []byte, o AttrAppender) []byte {
	if o == nil {
		return w.null(dst)
	}
	w.spent++
	switch {
	case w.spent > maxExpansions:
		return w.text(dst, tooMany)
	case w.depth >= maxGroups:
		return w.text(dst, tooDeep)
	}
	attrs, fault := collect(o)
	if attrs == nil {
		return w.text(dst, fault)
	}
	w.depth++
	dst = append(dst, '{')
	dst = append(w.attrs(dst, *attrs), '}')
	w.depth--
	putAttrs(attrs)
	return dst
}
