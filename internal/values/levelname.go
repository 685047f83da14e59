package values

import "log/slog"

// Levels in addition to the four of slog.
const (
	LevelTrace = slog.LevelDebug - 4
	LevelFatal = slog.LevelError + 4
)

// LevelWords are the level names used by Loki, Grafana and the forebay flags.
var LevelWords = [...]string{"trace", "debug", "info", "warn", "error", "fatal"}

// LevelIndex returns the index of the name of l in LevelWords. A level between two named levels has
// the name of the lower one. A level below Debug has the name trace.
func LevelIndex(l slog.Level) int {
	switch {
	case l < slog.LevelDebug:
		return 0
	case l < slog.LevelInfo:
		return 1
	case l < slog.LevelWarn:
		return 2
	case l < slog.LevelError:
		return 3
	case l < LevelFatal:
		return 4
	}
	return 5
}

// LevelWord returns the name of l in LevelWords.
func LevelWord(l slog.Level) string { return LevelWords[LevelIndex(l)] }

// LevelName returns slog's name of l, or TRACE or FATAL for the two levels that slog does
// not name.
func LevelName(l slog.Level) string {
	switch l {
	case LevelTrace:
		return "TRACE"
	case LevelFatal:
		return "FATAL"
	}
	return l.String()
}
