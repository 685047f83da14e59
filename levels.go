package forebay

import (
	"log/slog"
	"maps"
	"strings"
	"sync"
)

// A named is the level of the loggers of one name. Its three levels are read for each
// record and written by [Router.SetLevel] only.
//
// A level that was set for the name, or for a name above it, is a gate in front of all
// outputs, and outputs without a level of their own have no other. If none was set there
// is no gate, and those outputs take what is at least slog.LevelInfo.
type named struct {
	name  string
	least slog.LevelVar // below it, no output takes a record
	own   slog.LevelVar // the level of outputs without one
	floor slog.LevelVar // no output takes what is below; where core.exact, some takes all else
}

// names has the levels of a core by name. That of the root is "".
type names struct {
	mu     sync.Mutex
	byName map[string]*named
	set    map[string]slog.Level // what was set
	any    named                 // the lowest levels of all names, also of those without a logger yet

	follows bool       // some outputs have no level of their own
	lowest  slog.Level // no other output takes what is below
}

// of returns the gate of a name, and makes it if there is none.
func (g *names) of(name string) *named {
	g.mu.Lock()
	defer g.mu.Unlock()
	if l := g.byName[name]; l != nil {
		return l
	}
	l := &named{name: name}
	g.byName[name] = l
	g.updateLocked(l)
	if name == "" {
		g.updateAnyLocked()
	}
	return l
}

// setLevel sets the level of a name, or with nil lets it follow those above it.
func (g *names) setLevel(name string, l slog.Leveler) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if l == nil {
		delete(g.set, name)
	} else {
		g.set[name] = l.Level()
	}
	for _, l := range g.byName {
		g.updateLocked(l)
	}
	g.updateAnyLocked()
}

// updateAnyLocked computes the levels of any. A name for which nothing was set has those of
// a name above it.
func (g *names) updateAnyLocked() {
	least, own, floor := g.levelsLocked("")
	for name := range g.set {
		l, o, f := g.levelsLocked(name)
		least, own, floor = min(least, l), min(own, o), min(floor, f)
	}
	g.any.least.Set(least)
	g.any.own.Set(own)
	g.any.floor.Set(floor)
}

// updateLocked computes the levels of l.
func (g *names) updateLocked(l *named) {
	least, own, floor := g.levelsLocked(l.name)
	l.least.Set(least)
	l.own.Set(own)
	l.floor.Set(floor)
}

// levelsLocked returns the three levels of a name.
func (g *names) levelsLocked(name string) (least, own, floor slog.Level) {
	least, own = minLevel, slog.LevelInfo
	if set, ok := g.levelLocked(name); ok {
		least, own = set, set
	}
	floor = g.lowest
	if g.follows {
		floor = min(floor, own)
	}
	return least, own, max(least, floor)
}

// levelLocked returns the level that was set for name, or for the nearest name above it.
func (g *names) levelLocked(name string) (l slog.Level, ok bool) {
	for {
		if l, ok = g.set[name]; ok || name == "" {
			return l, ok
		}
		name = name[:max(0, strings.LastIndexByte(name, '.'))]
	}
}

// SetLevel sets the level of the loggers of a name, see [Logger.Named], and of those
// below it, such as "db.pool" below "db", that have none of their own. "" is the name of
// all others. It may be called at any time.
//
// A record that is below the level of its logger goes to no output. An output with a
// level of its own has a say, too; an output without one takes all that the logger lets
// through. As long as no level is set for a name, or for one above it, outputs without a
// level take records of slog.LevelInfo and more.
//
// l is read once. nil takes back what was set.
func (r *Router) SetLevel(name string, l slog.Leveler) {
	if c := r.core(); c != nil {
		c.names.setLevel(name, l)
	}
}

// Levels returns the names that have loggers or a level of their own, each with the level
// that [Router.SetLevel] has set for it or for a name above it, else slog.LevelInfo. An
// output with a level of its own ([Level], [Output]) takes less than that, or where
// SetLevel has set nothing, more. The map is the caller's.
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
