package forebay

import "log/slog"

// A threshold is the lowest level that an output accepts. It can change at any time.
type threshold struct {
	v     *slog.LevelVar // also for levels that never change: reading it is one load
	fixed bool           // v never changes
	other slog.Leveler   // used if v is nil; if it is also nil, the level of the logger applies
}

// newThreshold returns the threshold for the argument of the option Level. A *slog.LevelVar is read
// directly; any other Leveler is called for each record. nil means the level of the logger.
func newThreshold(l slog.Leveler) threshold {
	switch l := l.(type) {
	case nil:
		return threshold{}
	case *slog.LevelVar:
		return threshold{v: l}
	case slog.Level:
		v := new(slog.LevelVar)
		v.Set(l)
		return threshold{v: v, fixed: true}
	default:
		return threshold{other: l}
	}
}

// follows reports whether the level is the level of the logger.
func (t *threshold) follows() bool { return t.v == nil && t.other == nil }

// level returns the current threshold for records of a logger whose level is own.
func (t *threshold) level(own slog.Level) slog.Level {
	switch {
	case t.v != nil:
		return t.v.Level()
	case t.other != nil:
		return t.ask()
	}
	return own
}

// ask calls the user's Leveler. If it panics, all records are admitted, because too many
// records are less harmful than too few.
func (t *threshold) ask() (l slog.Level) {
	l = minLevel
	defer func() { _ = recover() }()
	l = t.other.Level()
	return l
}

// minLevel is a level at or below the level of every record.
const minLevel = slog.Level(-1 << 31)

// admits reports whether a record of level l from a logger of level own passes.
func (t *threshold) admits(l, own slog.Level) bool { return l >= t.level(own) }
