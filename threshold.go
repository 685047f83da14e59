package forebay

import "log/slog"

// threshold is the level from which an output takes records. It can change at
// any time.
type threshold struct {
	v     *slog.LevelVar // also for levels that never change: reading it is one load
	fixed bool           // v never changes
	other slog.Leveler   // if v is nil
}

// newThreshold keeps a *slog.LevelVar, and asks another kind of Leveler each
// time. nil is slog.LevelInfo.
func newThreshold(l slog.Leveler) threshold {
	switch l := l.(type) {
	case nil:
		return threshold{v: new(slog.LevelVar), fixed: true}
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

func (t *threshold) level() slog.Level {
	if t.v != nil {
		return t.v.Level()
	}
	return t.ask()
}

// ask calls the user's Leveler. One that panics admits everything: too much in a
// log is the smaller harm.
func (t *threshold) ask() (l slog.Level) {
	l = minLevel
	defer func() { _ = recover() }()
	l = t.other.Level()
	return l
}

const minLevel = slog.Level(-1 << 31)

func (t *threshold) admits(l slog.Level) bool { return l >= t.level() }
