package forebay

import (
	"errors"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/redact"
)

// A Router is a [slog.Handler] that encodes each record once per route and passes it to the
// outputs of the route whose level admits it. [NewRouter] makes a Router; [Router.Close]
// closes it. All methods are safe for concurrent use. The methods of a nil Router do nothing.
type Router struct{ h handler }

// A handler implements [slog.Handler]. It combines the core, which all loggers of a Router share,
// with the name, the attributes and the groups of one logger. It is immutable.
type handler struct {
	core   *core
	levels *nameLevels    // levels for the logger name
	scopes []encode.Scope // scopes with the attributes and groups of the handler, by route
	skip   int            // stack frames to skip for the source position, see Logger.WithCallerSkip

	// top are the attributes outside all groups: the name of the logger, and attributes added by
	// WithContext.
	top []slog.Attr
	// base contains the scopes as they were before the first group was opened, and groups the open
	// groups. The method compose uses both for records with attributes outside all groups. Both are
	// nil if no group is open.
	base   []encode.Scope
	groups []openGroup
	// place describes the open groups for redaction. It is nil if no group is open or nothing is
	// redacted.
	place *redact.Place
}

// A core is the part of a router that all handlers and loggers derived from it share.
type core struct {
	router  *Router // the Router that NewRouter returned, without attributes and groups
	routes  []*route
	outputs []*output // of all routes
	steps   []step    // actions for each record, see plan
	sole    *output   // the only output, if nothing is redacted; otherwise nil
	pool    scratchPool
	names   names
	root    *nameLevels // levels of loggers without a name
	// exact is true if some output accepts every record at or above nameLevels.floor. Then it is
	// sufficient to compare a level with the floor, and the levels of the outputs need not be
	// checked.
	exact     bool
	needsPC   bool
	contexts  []contextFunc
	samples   []*sampler
	bursts    bursts
	syncLevel slog.Level    // from this level on, callers wait for delivery; see SyncLevel
	redact    *redact.Rules // nil: nothing is redacted

	events    *reporter   // for events without an output, and of outputs without the option OnError
	reporters []*reporter // all reporters, for Close to wait for

	closed  atomic.Bool
	refused atomic.Uint64

	closing sync.Once
	done    chan struct{} // closed when report and err are set
	// finalReported is set once Logger.Close has written err and the number of records kept on
	// disk to standard error.
	finalReported atomic.Bool
	report        Report
	err           error
}

// A route is an encoder with the outputs that receive its encoded records.
type route struct {
	outputs []*output
	failing atomic.Uint64 // number of encoding failures since the last success
}

// A step is one action for a record: redact it, encode it for a route, or write the encoded record
// to an output.
type step struct {
	route  int
	out    *output // the output to write to; nil for encoding and redacting
	sole   bool    // the route has no other output: encoding has already checked the level
	meta   bool    // for encoding: keep the record's Meta, which an output of the route uses
	redact bool    // redact the record; this is the first step, if there are rules
}

// An openGroup is a group opened by WithGroup, with the attributes added to it. The attributes are
// stored without redaction. The method compose puts them into a record, which is redacted as a
// whole.
type openGroup struct {
	name  string
	attrs []slog.Attr
}

// core returns the core of r, or nil if r discards all records.
func (r *Router) core() *core {
	if r == nil {
		return nil
	}
	return r.h.core
}

// plan computes the steps for each record. All buffered outputs come before the direct outputs,
// whose writers may hang.
func (c *core) plan() {
	c.levels()
	c.pool.routes = len(c.routes)
	if c.redact != nil {
		c.steps = append(c.steps, step{redact: true})
	}
	var direct []step
	for i, r := range c.routes {
		c.steps = append(c.steps, step{route: i, meta: slices.ContainsFunc(r.outputs, (*output).buffered)})
		for _, o := range r.outputs {
			s := step{route: i, out: o, sole: len(r.outputs) == 1}
			if o.buffered() {
				c.steps = append(c.steps, s)
			} else {
				direct = append(direct, s)
			}
		}
	}
	c.steps = append(c.steps, direct...)
	if len(c.outputs) == 1 && c.redact == nil {
		c.sole = c.outputs[0]
	}
}

// refuse counts a record that was logged after Close. It reports the first such record, because a
// program rarely logs after Close on purpose. The program may exit immediately, so refuse waits
// until the report is written.
func (c *core) refuse() {
	if c.refused.Add(1) == 1 {
		c.events.postAndWait(batch.Event{Output: "router", Op: "closed", Err: errors.New("a record was written after Close; it and later records are refused")})
	}
}

// levels computes the lowest level that any output accepts, and whether that level can change.
func (c *core) levels() {
	g := &c.names
	g.byName, g.set = map[string]*nameLevels{}, map[string]slog.Level{}
	g.lowest = slog.Level(math.MaxInt)
	c.exact = true
	for _, o := range c.outputs {
		switch l := &o.level; {
		case l.follows():
			g.follows = true
		case l.fixed:
			g.lowest = min(g.lowest, l.v.Level())
		default:
			g.lowest, c.exact = minLevel, false
		}
	}
	c.root = g.get("")
}

// SetLevel sets the level of the loggers with the given name (see [Logger.Named]). The level also
// applies to the names below it for which no level is set, such as "db.pool" below "db". The name
// "" means all loggers without a name, and all loggers for whose name no level is set. SetLevel may
// be called at any time.
//
// A record below the level of its logger reaches no output. An output with a level also
// applies that level; an output without one accepts every record that the logger admits. While
// no level is set for a name or a name above it, outputs without a level accept slog.LevelInfo
// and above.
//
// SetLevel reads l once. If l is nil, the level of the name is removed.
func (r *Router) SetLevel(name string, l slog.Leveler) {
	if c := r.core(); c != nil {
		c.names.setLevel(name, l)
	}
}

// Levels returns the level of each name that has a logger or a level. It is the level set by
// [Router.SetLevel] for the name or a name above it, otherwise slog.LevelInfo. The result does not
// include the levels of outputs ([Level]). An output with a level may accept fewer records; if
// SetLevel has set no level, only the level of the output applies. The caller owns the map.
func (r *Router) Levels() map[string]slog.Level {
	c := r.core()
	if c == nil {
		return nil
	}
	g := &c.names
	g.mu.Lock()
	defer g.mu.Unlock()
	names := maps.Clone(g.set)
	for name := range g.byName {
		names[name] = 0
	}
	for name := range names {
		l, ok := g.levelLocked(name)
		if !ok {
			l = slog.LevelInfo
		}
		names[name] = l
	}
	return names
}
