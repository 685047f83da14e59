package record

import (
	"bytes"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/forebay-log/forebay/internal/values"
)

// Levels beyond the four of slog.
const (
	Trace = values.LevelTrace
	Fatal = values.LevelFatal
)

// ParseLevel reads the name of a level, in any case: those of slog (with an
// offset, as in "info+2"), and what other loggers call theirs.
func ParseLevel(s string) (slog.Level, error) {
	if l, ok := levelOf([]byte(s)); ok {
		return l, nil
	}
	var l slog.Level
	if err := l.UnmarshalText([]byte(s)); err == nil { // with an offset
		return l, nil
	}
	return 0, fmt.Errorf("%q is no level: use trace, debug, info, warn, error or fatal", s)
}

// levelOf returns the level that a word names, in any case.
func levelOf(word []byte) (slog.Level, bool) {
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
	case "trace", "finest", "finer", "verbose", "trc", "vrb", "trac":
		return Trace, true
	case "debug", "dbg", "debu", "fine", "config":
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

// isLevelKey knows the names that the usual loggers give the level.
func isLevelKey(key []byte) bool {
	switch string(key) {
	case "level", "lvl", "severity", "Level", "LEVEL", "Severity", "SEVERITY", "log.level", "@level", "@l", "levelname", "loglevel", "severity_text", "PRIORITY":
		return true
	}
	return false
}

// fieldLevel reads the value of a level field: a name, or the numbers of pino
// and bunyan (10 to 60), or those of syslog where the key is one of syslog's.
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

// SyslogLevel maps the severities of RFC 5424.
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

// levelWithin is how far into a text line a level may begin.
const levelWithin = 256

// textLevel finds the level in a line of text. To be one, a word must stand
// where levels stand: in capitals ("INFO", "WARN:", "INFO[0003]"), in brackets
// ("[notice]", "[core:error]"), before a colon ("error: no such file"), behind a time
// ("15:04:05 Info") or behind a name ("level=info"). A syslog priority ("<34>") and the
// letters of glog ("E0102 15:04:05"), Android ("01-02 15:04:05.999  12  34 E Tag:",
// "E/Tag( 12):", both also with a user, the second also behind the time) and Tornado
// ("[E 15:04:05") count too. The first one wins.
func textLevel(line []byte) (slog.Level, bool) {
	if l, ok := prefixLevel(line); ok {
		return l, true
	}
	end := min(len(line), levelWithin)
	for i := 0; i < end; {
		if !isLetter(line[i]) {
			i++
			continue
		}
		j := i + 1
		for j < len(line) && isWord(line[j]) {
			j++
		}
		if l, ok := levelOf(line[i:j]); ok && standsForLevel(line, i, j) {
			return l, true
		}
		i = j
	}
	return 0, false
}

// standsForLevel reports whether the word line[i:j] stands where levels stand.
func standsForLevel(line []byte, i, j int) bool {
	before, after := byte(' '), byte(' ')
	if i > 0 {
		before = line[i-1]
	}
	if j < len(line) {
		after = line[j]
	}
	if before == '=' || before == '"' || before == '\'' {
		k := bytes.TrimRight(line[:i], `="': `)
		from := bytes.LastIndexFunc(k, func(r rune) bool { return r > 0x7f || !isWord(byte(r)) }) + 1
		return isLevelKey(k[from:])
	}
	if !strings.ContainsRune(" \t[(<|,;:", rune(before)) {
		return false
	}
	rest := bytes.TrimLeft(line[j:], " ")
	closed := len(rest) > 0 && strings.IndexByte("])>|", rest[0]) >= 0
	switch {
	case closed && strings.IndexByte("[(<|:", before) >= 0:
		return true
	case isUpper(line[i:j]):
		if after == '[' { // INFO[0003] of logrus
			return j+1 < len(line) && isDigit(line[j+1])
		}
		return strings.ContainsRune(" \t:])>|,;", rune(after))
	case (after == ' ' || after == '\t') && behindClock(line[:i]):
		return true
	}
	return after == ':' && (before == ' ' || before == '\t')
}

// prefixLevel reads a syslog priority, or the letter at the head of a line.
func prefixLevel(line []byte) (slog.Level, bool) {
	if len(line) > 2 && line[0] == '<' {
		n, i := 0, 1
		for ; i < len(line) && i < 4 && isDigit(line[i]); i++ {
			n = n*10 + int(line[i]-'0')
		}
		if i > 1 && i < len(line) && line[i] == '>' && n <= 191 {
			return SyslogLevel(n & 7), true
		}
		return 0, false
	}
	if isTagged(line) {
		return letterLevel(line[0])
	}
	if len(line) > 3 && line[0] == '[' && line[2] == ' ' && isDigit(line[3]) { // [I 15:04:05 of Tornado
		return letterLevel(line[1])
	}
	if len(line) > 18 && line[2] == '-' && line[5] == ' ' && line[8] == ':' && line[11] == ':' && line[14] == '.' { // Android
		if l, ok := androidLevel(line[14:min(len(line), levelWithin)]); ok {
			return l, true
		}
	}
	if len(line) > 13 && isDigit(line[1]) && isDigit(line[4]) && line[5] == ' ' && line[8] == ':' && line[11] == ':' {
		return letterLevel(line[0])
	}
	return 0, false
}

// isTagged reports whether line begins as Android has it with logcat -v brief: I/Tag( 12):
func isTagged(line []byte) bool {
	if len(line) < 3 || line[1] != '/' {
		return false
	}
	tag, rest, ok := bytes.Cut(line[2:min(len(line), levelWithin)], []byte("("))
	if !ok || len(tag) == 0 || bytes.IndexByte(bytes.TrimRight(tag, " "), ' ') >= 0 {
		return false
	}
	pid, _, ok := bytes.Cut(rest, []byte("):"))
	if user, behind, both := bytes.Cut(pid, []byte(":")); ok && both {
		if pid = behind; !isAndroidUser(bytes.TrimLeft(user, " ")) {
			return false
		}
	}
	return ok && isNumber(bytes.TrimLeft(pid, " "))
}

// androidLevel reads what stands behind the seconds in lines of Android: the fraction, then
// I/Tag( 12): or the columns of logcat -v threadtime, the first of which may be a user.
func androidLevel(rest []byte) (slog.Level, bool) {
	if _, text, _ := bytes.Cut(rest, []byte(" ")); isTagged(text) {
		return letterLevel(text[0])
	}
	f := bytes.Fields(rest[:min(len(rest), 64)])
	switch {
	case len(f) > 4 && len(f[3]) == 1 && isLetter(f[3][0]) && isNumber(f[1]) && isNumber(f[2]):
		return letterLevel(f[3][0])
	case len(f) > 5 && len(f[4]) == 1 && isAndroidUser(f[1]) && isNumber(f[2]) && isNumber(f[3]) && bytes.IndexByte(rest, ':') >= 0:
		return letterLevel(f[4][0])
	}
	return 0, false
}

// isAndroidUser reports whether word is a user of Android, as logcat -v uid writes one: a
// number, u0_a12 of an app, or one of those that logcat names.
func isAndroidUser(word []byte) bool {
	switch string(word) {
	case "root", "system", "radio", "shell", "wifi", "media", "logd", "log", "audio", "cache", "nfc", "drm", "gps", "vpn", "vold", "nobody":
		return true
	}
	user, app, ok := bytes.Cut(word, []byte("_"))
	if !ok {
		return isNumber(word)
	}
	return len(user) > 1 && user[0] == 'u' && isNumber(user[1:]) && len(app) > 1 && isLetter(app[0]) && isNumber(bytes.TrimLeft(app, "ais"))
}

// letterLevel returns the level that a letter stands for.
func letterLevel(c byte) (slog.Level, bool) {
	switch c {
	case 'V', 'T':
		return Trace, true
	case 'D':
		return slog.LevelDebug, true
	case 'I':
		return slog.LevelInfo, true
	case 'W':
		return slog.LevelWarn, true
	case 'E':
		return slog.LevelError, true
	case 'F', 'A', 'C':
		return Fatal, true
	}
	return 0, false
}

// behindClock reports whether the last word of text is a time of the day, with its zone
// or not.
func behindClock(text []byte) bool {
	text = bytes.TrimRight(text, " \t")
	word := text[bytes.LastIndexAny(text, " \tT[")+1:]
	if len(word) < len("15:04:05") || !isDigit(word[0]) || !isDigit(word[1]) || word[2] != ':' || word[5] != ':' {
		return false
	}
	last := word[len(word)-1]
	return isDigit(last) || last == 'Z' || last == ']'
}

func isNumber(word []byte) bool {
	for _, c := range word {
		if !isDigit(c) {
			return false
		}
	}
	return len(word) > 0
}

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

// isWord reports whether c can be part of a name.
func isWord(c byte) bool {
	return isLetter(c) || isDigit(c) || c == '_' || c == '-' || c == '.' || c == '@'
}
