package forebay

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
)

// A Router is a [slog.Handler] that encodes each record once per route and hands
// it to the outputs of the route whose level admits it. Make it with
// [NewRouter], close it with [Router.Close]. All methods may be called from any
// goroutine.
type Router struct{ h handler }

// Enabled reports whether any output takes records of that level.
func (r *Router) Enabled(_ context.Context, level slog.Level) bool { return r.h.enabled(level) }

// Handle encodes rec and hands it to the outputs. It keeps nothing of rec, and
// an end of ctx does not stop it. The error is the first of any output; after Close it
// wraps [batch.ErrClosed]. It is counted in [Router.Stats], whoever looks at it.
func (r *Router) Handle(ctx context.Context, rec slog.Record) error { return r.h.handle(ctx, &rec) }

// WithAttrs returns a handler that adds attrs, encoded now, to every record.
func (r *Router) WithAttrs(attrs []slog.Attr) slog.Handler { return r.h.WithAttrs(attrs) }

// WithGroup returns a handler that puts all later attributes into a group.
func (r *Router) WithGroup(name string) slog.Handler { return r.h.WithGroup(name) }

// Logger returns a Logger on this router.
func (r *Router) Logger() *Logger {
	if r.h.core == nil {
		return nil
	}
	return &Logger{h: r.h, floor: r.h.core.floor}
}

// handler is a router under attributes and groups. It is immutable.
type handler struct {
	core   *core
	scopes []encode.Scope // by route
}

// core is what a router shares with all handlers and loggers derived from it.
type core struct {
	routes   []*route
	outputs  []*output // of all routes
	steps    []step
	sole     *output // the only output of the only route, if that is direct
	pool     scratchPool
	floor    *slog.LevelVar // no output takes what is below
	exact    bool           // some output takes everything else
	needsPC  bool
	contexts []contextFunc

	events    *reporter
	reporters []*reporter // all, for Close

	closed  atomic.Bool
	refused atomic.Uint64

	closing sync.Once
	done    chan struct{} // closed when report and err are set
	report  Report
	err     error
}

type route struct {
	outputs []*output
	failing atomic.Uint64 // records that could not be encoded since the last that could
}

// A step is one thing to do with a record: encoding it for a route, or writing
// that to an output.
type step struct {
	route int
	out   *output // nil: encode
	sole  bool    // the route has no other output: its level was looked at when encoding
	meta  bool    // of encoding: an output of the route wants to know of the Meta
}

// plan lays out what happens with each record: all routes are encoded and given
// to buffered outputs before any output is written in the caller.
func (c *core) plan() {
	c.floor, c.exact = floorOf(c.outputs)
	c.pool.routes = len(c.routes)
	var slots, direct []step
	for i, r := range c.routes {
		c.steps = append(c.steps, step{route: i, meta: slices.ContainsFunc(r.outputs, (*output).buffered)})
		for _, o := range r.outputs {
			s := step{route: i, out: o, sole: len(r.outputs) == 1}
			if _, late := o.w.(lateRecorder); late {
				slots = append(slots, s)
			} else if o.buffered() {
				c.steps = append(c.steps, s)
			} else {
				direct = append(direct, s)
			}
		}
	}
	c.steps = append(append(c.steps, slots...), direct...)
	if len(c.outputs) == 1 && len(direct) == 1 {
		c.sole = c.outputs[0]
	}
}

func (h *handler) enabled(level slog.Level) bool {
	c := h.core
	if c == nil {
		return false
	}
	if c.exact {
		return level >= c.floor.Level()
	}
	for _, o := range c.outputs {
		if o.admits(level) {
			return true
		}
	}
	return false
}

// Enabled is [Router.Enabled].
func (h *handler) Enabled(_ context.Context, level slog.Level) bool { return h.enabled(level) }

// Handle is [Router.Handle].
func (h *handler) Handle(ctx context.Context, rec slog.Record) error { return h.handle(ctx, &rec) }

// WithAttrs is [Router.WithAttrs].
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if len(attrs) == 0 || h.core == nil {
		return h
	}
	n := h.withAttrs(attrs)
	return &n
}

// WithGroup is [Router.WithGroup].
func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" || h.core == nil {
		return h
	}
	n := h.withGroup(name)
	return &n
}

func (h *handler) withAttrs(attrs []slog.Attr) handler {
	return h.derive(func(s encode.Scope) encode.Scope { return s.WithAttrs(attrs) })
}

func (h *handler) withGroup(name string) handler {
	return h.derive(func(s encode.Scope) encode.Scope { return s.WithGroup(name) })
}

func (h *handler) derive(f func(encode.Scope) encode.Scope) handler {
	n := handler{core: h.core, scopes: make([]encode.Scope, len(h.scopes))}
	for i, s := range h.scopes {
		n.scopes[i] = h.core.deriveOne(i, s, f)
	}
	return n
}

// deriveOne contains panics of an encoder: its scope then stays as it was.
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

// handle is Handle for a record that the caller keeps alive.
func (h *handler) handle(ctx context.Context, rec *slog.Record) error {
	c := h.core
	if c == nil {
		return errClosed
	}
	if c.closed.Load() {
		c.refused.Add(1)
		return errClosed
	}
	s := c.pool.get()
	s.rec.Time = rec.Time
	s.rec.Level = rec.Level
	s.rec.Message = rec.Message
	s.rec.PC = rec.PC
	if len(c.contexts) > 0 {
		return h.handleIn(ctx, s, rec)
	}
	return h.finish(s, rec)
}

// handleIn is the rest of handle where contexts are asked for attributes. If that
// ends the goroutine, the record is logged all the same.
func (h *handler) handleIn(ctx context.Context, s *scratch, rec *slog.Record) (err error) {
	asked := false
	defer func() {
		if !asked {
			err = h.finish(s, rec)
		}
	}()
	h.core.addContext(ctx, s)
	asked = true
	return h.finish(s, rec)
}

// finish adds the attributes of rec to s and hands the record out.
func (h *handler) finish(s *scratch, rec *slog.Record) error {
	if rec.NumAttrs() > 0 {
		rec.Attrs(func(a slog.Attr) bool {
			s.attrs = append(s.attrs, a)
			return true
		})
	}
	s.rec.Attrs = s.attrs
	h.emit(s)
	err := s.err
	h.core.pool.put(s)
	return err
}
