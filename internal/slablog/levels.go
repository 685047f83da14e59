package slablog

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/forebay-log/forebay/internal/contain"
	"github.com/forebay-log/forebay/slab"
)

// levels contains the levels of Options as slog.LevelVars. A write reads them for every record with
// a lock held, so reading them must not call user code.
type levels struct{ flush, reserve, important *slog.LevelVar }

// resolveLevels reads the levels of Options. The error names every field whose level could not be
// read.
func resolveLevels(o *slab.Options) (l levels, err error) {
	var errs [3]error
	l.flush, errs[0] = levelVar("FlushLevel", o.FlushLevel, slog.LevelError)
	l.reserve, errs[1] = levelVar("ReserveLevel", o.ReserveLevel, slog.LevelInfo)
	l.important, errs[2] = levelVar("ImportantLevel", o.ImportantLevel, slog.LevelError)
	return l, errors.Join(errs[:]...)
}

// levelVar returns l if it is a slog.LevelVar. If not, it returns a new one with the current level
// of l, or with def if l is nil.
func levelVar(field string, l slog.Leveler, def slog.Level) (*slog.LevelVar, error) {
	if v, ok := l.(*slog.LevelVar); ok && v != nil {
		return v, nil
	}
	if l != nil {
		if err := contain.Call(func() { def = l.Level() }); err != nil {
			return nil, fmt.Errorf("slab: Options.%s has no level: %w", field, err)
		}
	}
	v := new(slog.LevelVar)
	v.Set(def)
	return v, nil
}
