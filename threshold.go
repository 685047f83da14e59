package forebay

import "log/slog"

// A threshold is the lowest level that an output accepts. It can change at any time.
type threshold struct {
	// v is the level. A constant level is also stored in a LevelVar, so that reading the level
	// takes one atomic load.
	v     *slog.LevelVar
	fixed bool // v is constant
	// other is called for each record if v is nil. If other is also nil, the level of the logger
	// applies.
	other slog.Leveler
}

// newThreshold returns the threshold for l, the argument of the option Level. A nil l means the
// level of the logger.
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

// follows reports whether the output has no level, so that the level of the logger applies.
func (t *threshold) follows() bool { return t.v == nil && t.other == nil }

// level returns the threshold for a record of a logger whose level is loggerLevel.
func (t *threshold) level(loggerLevel slog.Level) slog.Level {
	switch {
	case t.v != nil:
		return t.v.Level()
	case t.other != nil:
		return t.callLeveler()
	}
	return loggerLevel
}

// callLeveler calls the user-supplied Leveler. If it panics, all records are admitted, because too
// many records are less harmful than too few.
func (t *threshold) callLeveler() (l slog.Level) {
	l = minLevel
	defer func() { _ = recover() }()
	l = t.other.Level()
	return l
}

// minLevel is a level at or below the level of every record.
const minLevel = slog.Level(-1 << 31)

// admits reports whether the output accepts a record of level l from a logger whose level is
// loggerLevel.
func (t *threshold) admits(l, loggerLevel slog.Level) bool { return l >= t.level(loggerLevel) }
