package values

import "log/slog"

// Levels beyond the four of slog.
const (
	LevelTrace = slog.LevelDebug - 4
	LevelFatal = slog.LevelError + 4
)

// LevelWords are the levels as Loki, Grafana and the flags of forebay name them.
var LevelWords = [...]string{"trace", "debug", "info", "warn", "error", "fatal"}

// LevelIndex maps a level to LevelWords: what lies between two levels belongs to the lower
// one, and below Debug is trace.
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

// LevelWord is the word for l.
func LevelWord(l slog.Level) string { return LevelWords[LevelIndex(l)] }

// LevelName returns the name of l: that of slog, and TRACE or FATAL for the two that slog
// has none for.
func LevelName(l slog.Level) string {
	switch l {
	case LevelTrace:
		return "TRACE"
	case LevelFatal:
		return "FATAL"
	}
	return l.String()
}
