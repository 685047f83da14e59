package forebay

import (
	"log/slog"
	"strings"
	"sync"
)

// A nameLevels holds the levels of the loggers with one name. The three levels are read for each
// record and changed only by [Router.SetLevel].
//
// A level set for the name, or for a name above it such as "db" above "db.pool", applies to all
// outputs. If no such level is set, outputs without a level accept slog.LevelInfo and above.
type nameLevels struct {
	name  string
	least slog.LevelVar // records below it are discarded; set by SetLevel, or else minLevel
	own   slog.LevelVar // the level of outputs without a level
	// floor is the lowest level that any output accepts. If core.exact is set, some output
	// accepts each level at or above it.
	floor slog.LevelVar
}

// names holds the levels of the loggers by name. The root logger has the name "".
type names struct {
	mu     sync.Mutex
	byName map[string]*nameLevels
	set    map[string]slog.Level // the levels set by SetLevel
	any    nameLevels            // the lowest levels that any name has or could have, for EnabledForAny

	follows bool       // some output has no level and follows the level of the logger
	lowest  slog.Level // the lowest level of the outputs that have a level
}

// get returns the levels of a name. It creates them when the name is first used.
func (g *names) get(name string) *nameLevels {
	g.mu.Lock()
	defer g.mu.Unlock()
	if l := g.byName[name]; l != nil {
		return l
	}
	l := &nameLevels{name: name}
	g.byName[name] = l
	g.updateLocked(l)
	if name == "" {
		g.updateAnyLocked()
	}
	return l
}

// setLevel sets the level of a name. If l is nil, setLevel removes the level, and the name
// inherits one.
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

// updateAnyLocked computes g.any from the root and the names with a level set by SetLevel. Every
// other name inherits its levels from one of these.
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

// updateLocked computes the levels of l. The caller holds g.mu.
func (g *names) updateLocked(l *nameLevels) {
	least, own, floor := g.levelsLocked(l.name)
	l.least.Set(least)
	l.own.Set(own)
	l.floor.Set(floor)
}

// levelsLocked returns the three levels of a name; see [nameLevels].
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

// levelLocked returns the level set by SetLevel for name, or for the nearest name above it. ok is
// false if there is none.
func (g *names) levelLocked(name string) (l slog.Level, ok bool) {
	for {
		if l, ok = g.set[name]; ok || name == "" {
			return l, ok
		}
		name = name[:max(0, strings.LastIndexByte(name, '.'))]
	}
}
