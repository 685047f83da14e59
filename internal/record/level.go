package record

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/forebay-log/forebay/internal/values"
)

// Levels in addition to the four of slog.
const (
	Trace = values.LevelTrace
	Fatal = values.LevelFatal
)

// ParseLevel parses the name of a level in any case: the names of slog, optionally with an offset
// as in "info+2", and those of other loggers.
func ParseLevel(s string) (slog.Level, error) {
	if l, ok := levelOf([]byte(s)); ok {
		return l, nil
	}
	var l slog.Level
	if err := l.UnmarshalText([]byte(s)); err == nil { // with an offset
		return l, nil
	}
	return 0, fmt.Errorf("%q is not a level: use trace, debug, info, warn, error or fatal", s)
}

// levelOf returns the level that word names, in any case. ok is false if word is no level name.
func levelOf(word []byte) (l slog.Level, ok bool) {
	if len(word) < 3 || len(word) > 13 {
		return 0, false
	}
	var low [13]byte
	for i, c := range word {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		low[i] = c
	}
	switch string(low[:len(word)]) {
	case "trace", "finest", "finer", "verbose", "trc", "vrb", "trac", "trce",
		"trace1", "trace2", "trace3", "trace4", "trace5", "trace6", "trace7", "trace8": // Apache
		return Trace, true
	case "debug", "dbg", "debu", "dbug", "fine", "config",
		"debug1", "debug2", "debug3", "debug4", "debug5": // PostgreSQL, OpenSSH
		return slog.LevelDebug, true
	case "info", "information", "informational", "inf", "notice":
		return slog.LevelInfo, true
	case "warn", "warning", "wrn":
		return slog.LevelWarn, true
	case "error", "err", "erro", "severe":
		return slog.LevelError, true
	case "fatal", "ftl", "fata", "critical", "crit", "panic", "pnc", "pani", "dpanic", "alert", "emerg", "emergency":
		return Fatal, true
	}
	return 0, false
}

// isLevelKey reports whether key is the name of the level field in a common logger.
func isLevelKey(key []byte) bool {
	switch string(key) {
	case "level", "lvl", "severity", "Level", "LEVEL", "Severity", "SEVERITY", "log.level", "@level", "@l", "levelname", "level_name", "loglevel",
		"severity_text", "error_severity", "PRIORITY", inputPrefix + "level":
		return true
	}
	return false
}

// fieldLevel parses the value of a level field: a name, a number of pino and bunyan (10 to 60), or
// a syslog severity if the key is one that syslog uses.
func fieldLevel(key, value []byte) (slog.Level, bool) {
	if l, ok := levelOf(value); ok {
		return l, true
	}
	n, err := strconv.Atoi(string(value))
	switch {
	case err != nil:
		var l slog.Level
		if err := l.UnmarshalText(value); err == nil { // slog's INFO+2
			return l, true
		}
		return 0, false
	case n >= 10 && n < 100:
		return slog.Level((n/10-3)*4 + n%10*4/10), true
	case n >= 0 && n <= 7 && (strings.EqualFold(string(key), "severity") || string(key) == "PRIORITY"):
		return SyslogLevel(n), true
	}
	return 0, false
}

// SyslogLevel returns the level for a severity of RFC 5424, 0 (emergency) to 7 (debug).
func SyslogLevel(n int) slog.Level {
	switch n {
	case 7:
		return slog.LevelDebug
	case 6, 5:
		return slog.LevelInfo
	case 4:
		return slog.LevelWarn
	case 3:
		return slog.LevelError
	}
	return Fatal
}

// isNumber reports whether word consists of one or more digits.
func isNumber(word []byte) bool {
	for _, c := range word {
		if !isDigit(c) {
			return false
		}
	}
	return len(word) > 0
}

// isUpper reports whether word consists of upper-case ASCII letters.
func isUpper(word []byte) bool {
	for _, c := range word {
		if c < 'A' || c > 'Z' {
			return false
		}
	}
	return true
}

func isDigit(c byte) bool  { return c-'0' < 10 }
func isLetter(c byte) bool { return c|0x20-'a' < 26 }
