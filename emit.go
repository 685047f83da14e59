package forebay

import (
	"context"
	"errors"
	"log/slog"

	"github.com/forebay-log/forebay/batch"
)

var errShrunk = errors.New("forebay: encoder returned less than it was given")

// emit takes the record in s through the steps of the core. Nothing that a step
// does (error, panic, runtime.Goexit) keeps the later ones from being taken.
func (h *handler) emit(s *scratch) {
	c := h.core
	finished := false
	defer func() {
		if !finished {
			h.resume(s, recover())
		}
	}()
	for s.step < len(c.steps) {
		st := &c.steps[s.step]
		s.step++
		sp := &s.spans[st.route]
		switch st.kind {
		case stepEncode:
			r := c.routes[st.route]
			sp.ok = false
			if !r.admits(s.rec.Level) {
				continue
			}
			n := len(s.buf)
			buf, meta, err := h.scopes[st.route].Append(s.buf, &s.rec)
			if err == nil && len(buf) < n {
				err = errShrunk
			}
			if err != nil {
				c.encodeFailed(s, r, err)
				continue
			}
			if r.failing.Load() != 0 {
				r.encodeRecovered()
			}
			s.buf = buf
			*sp = span{ok: true, from: n, to: len(buf), meta: meta}
		case stepBuffered:
			if sp.ok && (st.sole || st.out.admits(s.rec.Level)) {
				s.note(st.out.writeBuffered(sp.of(s.buf), sp.meta))
			}
		case stepDirect:
			if sp.ok && (st.sole || st.out.admits(s.rec.Level)) {
				s.note(st.out.writeDirect(sp.of(s.buf)))
			}
		}
	}
	finished = true
}

func (s *scratch) note(err error) {
	if err != nil && s.err == nil {
		s.err = err
	}
}

// resume deals with the step that did not return, and goes on with the next. It
// runs in a deferred call, so after runtime.Goexit too.
func (h *handler) resume(s *scratch, recovered any) {
	c := h.core
	switch st := &c.steps[s.step-1]; st.kind {
	case stepEncode:
		c.encodeFailed(s, c.routes[st.route], unwound(recovered))
	default:
		sp := &s.spans[st.route]
		s.note(st.out.abandon(sp.of(s.buf), recovered))
	}
	h.emit(s)
}

func (r *route) admits(l slog.Level) bool {
	for _, o := range r.outputs {
		if o.admits(l) {
			return true
		}
	}
	return false
}

// encodeFailed counts the record as dropped by each output that would have got
// it.
func (c *core) encodeFailed(s *scratch, r *route, err error) {
	s.note(err)
	first := r.failing.Add(1) == 1
	for _, o := range r.outputs {
		if !o.admits(s.rec.Level) {
			continue
		}
		o.encode.Add(1)
		o.tally.note(err)
		if first {
			o.events.post(batch.Event{Output: o.name, Op: "encode", Err: err, Count: 1})
		}
	}
}

func (r *route) encodeRecovered() {
	n := r.failing.Swap(0)
	if n == 0 {
		return // somebody else was first
	}
	for _, o := range r.outputs {
		if o.encode.Load() > 0 {
			o.events.post(batch.Event{Output: o.name, Op: "recovered", Count: n})
		}
	}
}

// addContext appends the attributes that ctx carries.
func (c *core) addContext(ctx context.Context, s *scratch) {
	for _, fn := range c.contexts {
		c.addContextOf(ctx, fn, s)
	}
}

func (c *core) addContextOf(ctx context.Context, fn ContextFunc, s *scratch) {
	n := len(s.attrs)
	defer func() {
		if p := recover(); p != nil {
			s.attrs = s.attrs[:n]
			c.events.post(batch.Event{Output: "context", Op: "panic", Err: panicError{p}})
		}
		clear(s.attrs[len(s.attrs):cap(s.attrs)]) // what fn appended and took back
	}()
	// With its capacity cut off, fn can neither see nor overwrite what is not its
	// own, and what it returns is copied: scratch must not adopt a slice of the
	// caller's, which it would clear.
	got := fn(ctx, s.attrs[n:n:cap(s.attrs)])
	if len(got) > 0 && cap(s.attrs) > n && &got[0] == &s.attrs[:n+1][n] {
		s.attrs = s.attrs[:n+len(got)]
		return
	}
	s.attrs = append(s.attrs, got...)
}
