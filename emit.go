package forebay

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"

	"github.com/forebay-log/forebay/batch"
)

// errShrunk is the error for an encoder whose Append returned less than it received.
var errShrunk = errors.New("forebay: encoder returned a shorter slice than it received")

// emit runs the steps for the record in s (redact, encode, write), beginning with step s.step. If a
// step fails, panics or calls runtime.Goexit, the remaining steps are still run.
func (h *handler) emit(s *scratch) {
	c := h.core
	finished := false
	defer func() {
		if !finished {
			h.resume(s, recover())
		}
	}()
	if o := c.sole; o != nil && s.step == 0 {
		// The loop below, unrolled for the most frequent case: the steps of one output. This saves
		// 6 % of the time of a call. The field ok of the span is not set, so that resume does not
		// write the record if the encoder panics.
		s.step = 1
		if o.admits(s.rec.Level, s.ownLevel) {
			buf, meta, err := h.scopes[0].Append(s.buf, &s.rec)
			if err != nil {
				c.encodeFailed(s, c.routes[0], err)
			} else {
				if c.routes[0].failing.Load() != 0 {
					c.routes[0].encodeRecovered()
				}
				s.buf = buf
				sp := &s.spans[0]
				sp.from, sp.to = 0, len(buf)
				s.step = 2
				if o.direct != nil {
					s.err = o.direct.write(buf, &o.tally)
				} else {
					s.err = o.writeBuffered(buf, meta)
				}
			}
		}
		finished = true
		return
	}
	for s.step < len(c.steps) {
		st := &c.steps[s.step]
		s.step++
		if st.redact {
			h.redact(s)
		} else if st.out == nil {
			h.encode(s, st)
		} else if s.spans[st.route].ok && (st.sole || st.out.admits(s.rec.Level, s.ownLevel)) {
			s.keepFirst(st.write(s))
		}
	}
	finished = true
}

// encode encodes the record for the route of st if one of the route's outputs accepts the level,
// and stores the position of the encoded record within s.buf.
func (h *handler) encode(s *scratch, st *step) {
	c := h.core
	r := c.routes[st.route]
	sp := &s.spans[st.route]
	sp.ok = false
	if !r.admits(s.rec.Level, s.ownLevel) {
		return
	}
	n := len(s.buf)
	buf, meta, err := h.scopes[st.route].Append(s.buf, &s.rec)
	if err == nil && len(buf) < n {
		err = errShrunk
	}
	if err != nil {
		c.encodeFailed(s, r, err)
		return
	}
	if r.failing.Load() != 0 {
		r.encodeRecovered()
	}
	s.buf = buf
	sp.ok, sp.from, sp.to = true, n, len(buf)
	if st.meta {
		sp.meta = meta
	}
}

// write passes the encoded record to an output.
func (st *step) write(s *scratch) error {
	sp := &s.spans[st.route]
	if st.out.direct != nil {
		return st.out.writeDirect(sp.encoded(s.buf))
	}
	return st.out.writeBuffered(sp.encoded(s.buf), sp.meta)
}

// keepFirst stores err as the result of the log call, unless an earlier error is stored.
func (s *scratch) keepFirst(err error) {
	if err != nil && s.err == nil {
		s.err = err
	}
}

// resume handles a step that panicked or called runtime.Goexit, and runs the remaining steps. emit
// defers the call, because only a deferred function runs after runtime.Goexit. recovered is the
// result of recover.
func (h *handler) resume(s *scratch, recovered any) {
	c := h.core
	if st := &c.steps[s.step-1]; st.redact {
		h.withhold(s)
	} else if st.out == nil {
		c.encodeFailed(s, c.routes[st.route], unwound(recovered))
	} else {
		s.keepFirst(st.out.abandon(s.spans[st.route].encoded(s.buf), recovered))
	}
	h.emit(s)
	if recovered == nil { // after runtime.Goexit, emit's caller cannot return s to the pool
		c.pool.put(s)
	}
}

// admits reports whether any output of r accepts records of level l from a logger whose level is
// loggerLevel.
func (r *route) admits(l, loggerLevel slog.Level) bool {
	for _, o := range r.outputs {
		if o.admits(l, loggerLevel) {
			return true
		}
	}
	return false
}

// encodeFailed counts the record as dropped by each output of r that would have received it.
func (c *core) encodeFailed(s *scratch, r *route, err error) {
	s.keepFirst(err)
	first := r.failing.Add(1) == 1
	for _, o := range r.outputs {
		if !o.admits(s.rec.Level, s.ownLevel) {
			continue
		}
		o.encode.Add(1)
		o.tally.setLast(err)
		if first {
			o.events.post(batch.Event{Output: o.name, Op: "encode", Err: err, Count: 1})
		}
	}
}

// encodeRecovered posts an event that the encoder works again, with the number of failures.
func (r *route) encodeRecovered() {
	n := r.failing.Swap(0)
	if n == 0 {
		return // another goroutine has reported the recovery
	}
	for _, o := range r.outputs {
		if o.encode.Load() > 0 {
			o.events.post(batch.Event{Output: o.name, Op: "recovered", Count: n})
		}
	}
}

// addContext appends the attributes that the functions given with the option Context return for
// ctx.
func (c *core) addContext(ctx context.Context, s *scratch) {
	for _, fn := range c.contexts {
		c.addContextOf(ctx, fn, s)
	}
}

// addContextOf appends the attributes that fn returns for ctx. If fn panics, it posts an event.
func (c *core) addContextOf(ctx context.Context, fn contextFunc, s *scratch) {
	n := len(s.attrs)
	returned := false
	defer func() {
		if !returned {
			c.events.post(batch.Event{Output: "context", Op: "panic", Err: c.clean(unwound(recover()))})
		}
		clear(s.attrs[len(s.attrs):cap(s.attrs)]) // attributes that fn has appended but not returned
	}()
	// fn gets an empty slice, so that it cannot read or overwrite attributes of other functions. If
	// fn returns another slice, its attributes are copied, because s.attrs is cleared later and a
	// slice of the application must not be cleared.
	got := fn(ctx, s.attrs[n:n:cap(s.attrs)])
	returned = true
	if len(got) > 0 && cap(s.attrs) > n && &got[0] == &s.attrs[:n+1][n] {
		s.attrs = s.attrs[:n+len(got)]
		return
	}
	s.attrs = append(s.attrs, got...)
}

// callerAbove returns the position of the caller that is skip frames above pc on the stack of this
// goroutine. If pc is not on the stack, it returns pc.
func callerAbove(pc uintptr, skip int) uintptr {
	var pcs [64]uintptr
	n := runtime.Callers(3, pcs[:])
	i := slices.Index(pcs[:n], pc)
	if i < 0 || i+skip < 0 || i+skip >= n {
		return pc
	}
	return pcs[i+skip]
}

// callerPC returns the position of the call of the logging method. If skip is not 0, it returns the
// position of the caller that is skip frames above that call on the stack.
func callerPC(skip int) uintptr {
	var pcs [1]uintptr
	runtime.Callers(4+skip, pcs[:])
	return pcs[0]
}
