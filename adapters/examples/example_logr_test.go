package examples

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-logr/logr"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/forebaytest"
)

func newLogr(log *forebay.Logger) logr.Logger {
	logger := logr.FromSlogHandler(log.Slog().Handler())
	return logger
}

func TestLogrWritesRecords(t *testing.T) {
	rec := forebaytest.New(t)
	logger := newLogr(rec.Logger())

	logger.Info("reconciled", "pods", 3)
	logger.V(4).Info("details")
	logger.WithName("controller").WithValues("namespace", "default").Error(errors.New("conflict"), "cannot update", "attempt", 2)

	rec.Want(slog.LevelInfo, "reconciled", "pods", 3)
	rec.Want(slog.LevelDebug, "details")
	r := rec.Want(slog.LevelError, "cannot update", "logger", "controller", "namespace", "default", "attempt", 2, "err", errors.New("conflict"))
	if !strings.HasPrefix(r.Source, "examples/example_logr_test.go:") {
		t.Errorf("source %q", r.Source)
	}
}

// logr's method V checks the levels of the outputs.
func TestLogrVerbosityFollowsOutputLevels(t *testing.T) {
	rec := forebaytest.New(t)
	level := new(slog.LevelVar)
	log, err := forebay.New(forebay.Writer(rec, forebay.Level(level)))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	logger := newLogr(log)
	if logger.V(0).Enabled() != true || logger.V(1).Enabled() {
		t.Error("Enabled does not follow the level of the output")
	}
	level.Set(slog.LevelDebug)
	if !logger.V(4).Enabled() || logger.V(5).Enabled() {
		t.Error("V(4) is slog.LevelDebug")
	}
	if handler := logr.ToSlogHandler(logger); handler != log.Slog().Handler() {
		// The handler may differ, but it must belong to a Router, because other handlers lack the
		// methods that a Router adds to slog.Handler.
		if _, ok := handler.(interface{ EnabledForAny(slog.Level) bool }); !ok {
			t.Errorf("logr.ToSlogHandler returns a %T, want the handler of the Router", handler)
		}
	}
}
