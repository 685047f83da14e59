package forebay

import (
	"context"
	"log/slog"
	"slices"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/wallclock"
)

// Enabled reports whether any output accepts records of the given level.
func (r *Router) Enabled(_ context.Context, level slog.Level) bool {
	return r != nil && r.h.enabled(level)
}

// Handle encodes rec and passes it to the outputs. It retains nothing of rec, and ignores the
// cancellation of ctx. It returns the first error of an output; after Close the error wraps
// [batch.ErrClosed]. Errors are also counted in [Router.Stats].
func (r *Router) Handle(ctx context.Context, rec slog.Record) error {
	if r == nil {
		return nil
	}
	return r.h.handle(ctx, &rec)
}

// WithAttrs returns a handler that adds attrs to every record. WithAttrs encodes attrs once, when
// it is called. If attrs is empty, it returns r.
func (r *Router) WithAttrs(attrs []slog.Attr) slog.Handler {
	if r.core() == nil || len(attrs) == 0 {
		return r
	}
	return r.h.WithAttrs(attrs)
}

// WithGroup returns a handler that puts all attributes added later into the named group. If
// name is empty, it returns r.
func (r *Router) WithGroup(name string) slog.Handler {
	if r.core() == nil || name == "" {
		return r
	}
	return r.h.WithGroup(name)
}

// enabled reports whether any output accepts records of the given level.
func (h *handler) enabled(level slog.Level) bool {
	c := h.core
	if c == nil {
		return false
	}
	if level < h.levels.floor.Level() {
		return false
	}
	if c.exact {
		return true
	}
	own := h.levels.own.Level()
	for _, o := range c.outputs {
		if o.admits(level, own) {
			return true
		}
	}
	return false
}

// EnabledForAny reports whether records of the given level may be accepted for any logger name.
// Adapters use it for loggers that check the level before the name is known.
func (h *handler) EnabledForAny(level slog.Level) bool {
	n := handler{core: h.core}
	if h.core != nil {
		n.levels = &h.core.names.any
	}
	return n.enabled(level)
}

// NeedsPC reports whether any encoder writes the source position of records. Adapters use it for
// loggers that provide the position as text.
func (h *handler) NeedsPC() bool { return h.core != nil && h.core.needsPC }

// HandleTop is like Handle and adds the attributes in top, outside all groups.
func (h *handler) HandleTop(ctx context.Context, rec slog.Record, top ...slog.Attr) error {
	return h.handle(ctx, &rec, top...)
}

// Enabled implements [slog.Handler]; see [Router.Enabled].
func (h *handler) Enabled(_ context.Context, level slog.Level) bool { return h.enabled(level) }

// Handle implements [slog.Handler]; see [Router.Handle].
func (h *handler) Handle(ctx context.Context, rec slog.Record) error { return h.handle(ctx, &rec) }

// WithAttrs implements [slog.Handler]; see [Router.WithAttrs].
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if len(attrs) == 0 || h.core == nil {
		return h
	}
	n := h.withAttrs(attrs)
	return &n
}

// WithGroup implements [slog.Handler]; see [Router.WithGroup].
func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" || h.core == nil {
		return h
	}
	n := h.withGroup(name)
	return &n
}

// withAttrs returns h with attributes in the innermost group. It also stores them, neither encoded
// nor redacted, in the field groups for the method compose.
func (h *handler) withAttrs(attrs []slog.Attr) handler {
	shown := attrs
	if r := h.core.redact; r != nil {
		shown = r.With(h.place, attrs)
	}
	n := h.derive(func(s encode.Scope) encode.Scope { return s.WithAttrs(shown) })
	if last := len(n.groups) - 1; last >= 0 {
		g := openGroup{n.groups[last].name, slices.Clone(n.groups[last].attrs)}
		for _, a := range attrs {
			a.Value = a.Value.Resolve()
			g.attrs = append(g.attrs, a)
		}
		n.groups = append(n.groups[:last:last], g)
	}
	return n
}

// withGroup returns h with an open group. If this is the first group, it also sets the field base
// for the method compose.
func (h *handler) withGroup(name string) handler {
	shown, place := name, h.place
	if r := h.core.redact; r != nil {
		place, shown = r.Group(place, name)
	}
	n := h.derive(func(s encode.Scope) encode.Scope { return s.WithGroup(shown) })
	n.place = place
	if n.base == nil {
		n.base = h.scopes
	}
	n.groups = append(n.groups[:len(n.groups):len(n.groups)], openGroup{name: name})
	return n
}

// derive returns a copy of h with each scope replaced by the result of f.
func (h *handler) derive(f func(encode.Scope) encode.Scope) handler {
	n := *h
	n.scopes = make([]encode.Scope, len(h.scopes))
	for i, s := range h.scopes {
		n.scopes[i] = h.core.deriveOne(i, s, f)
	}
	return n
}

// withTop returns h with additional attributes outside all groups.
func (h *handler) withTop(attrs []slog.Attr) handler {
	n := *h
	n.top = slices.Clone(h.top)
	for _, a := range attrs {
		a.Value = a.Value.Resolve()
		n.top = append(n.top, a)
	}
	return n
}

// deriveOne returns f(s) for the scope s of a route. If f panics, it reports the panic and returns
// s.
func (c *core) deriveOne(route int, s encode.Scope, f func(encode.Scope) encode.Scope) (n encode.Scope) {
	n = s
	defer func() {
		if p := recover(); p != nil {
			o := c.routes[route].outputs[0]
			o.events.post(batch.Event{Output: o.name, Op: "encode", Err: panicError{p}})
		}
	}()
	if d := f(s); d != nil {
		n = d
	}
	return n
}

// handle implements Handle. It does not use rec after it returns. The attributes in top are outside
// all groups.
func (h *handler) handle(ctx context.Context, rec *slog.Record, top ...slog.Attr) error {
	c := h.core
	if c == nil {
		return errClosed
	}
	if c.closed.Load() {
		c.refuse()
		return errClosed
	}
	if rec.Level < h.levels.least.Level() {
		return nil
	}
	s := c.pool.get()
	s.rec.Time = rec.Time
	s.rec.Level = rec.Level
	s.rec.Message = rec.Message
	s.rec.PC = rec.PC
	if h.skip != 0 && c.needsPC {
		s.rec.PC = callerAbove(rec.PC, h.skip)
	}
	s.attrs = append(append(s.attrs, h.top...), top...)
	s.last = rec.NumAttrs() == 0 && endsProgram(rec.PC)
	if len(c.samples) > 0 && !s.last && !h.passSampling(s) {
		c.pool.put(s)
		return nil
	}
	if len(c.contexts) > 0 {
		return h.handleIn(ctx, s, rec)
	}
	return h.finish(s, rec, len(s.attrs))
}

// handleIn implements handle if there are functions given with the option Context. The record is
// logged even if one of these functions calls runtime.Goexit.
func (h *handler) handleIn(ctx context.Context, s *scratch, rec *slog.Record) (err error) {
	asked := false
	defer func() {
		if !asked {
			err = h.finish(s, rec, len(s.attrs))
		}
	}()
	h.core.addContext(ctx, s)
	asked = true
	return h.finish(s, rec, len(s.attrs))
}

// finish adds the attributes of rec to s, emits the record, and returns s to the pool. s already
// contains the attributes outside all groups, and top is their number.
func (h *handler) finish(s *scratch, rec *slog.Record, top int) error {
	if rec.NumAttrs() > 0 {
		rec.Attrs(func(a slog.Attr) bool {
			s.attrs = append(s.attrs, a)
			return true
		})
	}
	h.send(s, top)
	err, last := s.err, s.last
	h.core.pool.put(s)
	switch {
	case last:
		h.core.lastSync()
	case rec.Level >= h.core.syncLevel:
		h.core.sync()
	}
	return err
}

// send emits the record in s. The attributes outside all groups are the first in s, and top is
// their number.
func (h *handler) send(s *scratch, top int) {
	s.ownLevel = h.levels.own.Level()
	if top > 0 && len(h.groups) > 0 {
		h.compose(s, top)
		return
	}
	s.rec.Attrs = s.attrs
	h.emit(s)
}

// compose emits a record that has attributes outside all groups, from a handler with open groups.
// The scopes of h would put all attributes into the groups, so compose uses the scopes before the
// first group and writes the groups as an attribute of the record.
func (h *handler) compose(s *scratch, top int) {
	inner := s.attrs[top:]
	for i := len(h.groups) - 1; i >= 0; i-- {
		g := &h.groups[i]
		from := len(s.nest)
		s.nest = append(append(s.nest, g.attrs...), inner...)
		group := slog.Attr{Key: g.name, Value: slog.GroupValue(s.nest[from:len(s.nest):len(s.nest)]...)}
		s.nest = append(s.nest, group)
		inner = s.nest[len(s.nest)-1:]
	}
	clear(s.attrs[top:])
	s.attrs = append(s.attrs[:top], inner...)
	s.rec.Attrs = s.attrs
	root := *h
	root.scopes, root.base, root.groups, root.place = h.base, nil, nil, nil
	root.emit(s)
}

// passSampling reports whether the record in s must be logged. A logged record gets the attribute
// "repeated" with the number of records omitted before it. A record that is not logged is counted
// as dropped by each output that would have accepted it.
func (h *handler) passSampling(s *scratch) bool {
	c := h.core
	for _, sm := range c.samples {
		if !sm.contains(s.rec.Level) {
			continue
		}
		t := s.rec.Time
		if t.IsZero() {
			t = wallclock.Now()
		}
		slot, key := sm.slot(h.levels.name, s.rec.Message, s.rec.Level)
		ok, omitted := sm.take(slot, key, t.Unix(), &c.bursts)
		if omitted > 0 {
			s.attrs = append(s.attrs, slog.Uint64("repeated", omitted))
		}
		if ok {
			return true
		}
		own := h.levels.own.Level()
		for _, o := range c.outputs {
			if o.admits(s.rec.Level, own) {
				o.sampled.Add(1)
			}
		}
		if st := slot.burst.Load(); st == nil || st.key != key {
			c.begin(slot, key, h.levels.name, &s.rec)
		}
		return false
	}
	return true
}
