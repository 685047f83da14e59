package record

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"

	"github.com/forebay-log/forebay/internal/lazy"
	"github.com/forebay-log/forebay/internal/stamp"
)

// In a line of text, a level must end within the first levelWithin bytes and follow at most
// levelWords words.
const (
	levelWithin = 256
	levelWords  = 12
)

// A find is the level in a line of text: line[from:to] names it.
type find struct {
	level    slog.Level
	from, to int
	why      string // why line[from:to] is a level; "": there is none
}

// textLevel returns the level of a text line. at is the time in the line. A word of a sentence is
// never a level. Syslog, glog, Android and Tornado write the level first. Other programs write it
// before the message, among the time, numbers, thread names in brackets, loggers, hosts and
// programs. The search ends at the first word of prose and at a quotation mark.
func textLevel(line []byte, at *stamp.Match) find {
	if f := prefixLevel(line); f.why != "" {
		return f
	}
	if at.Form != nil && at.Form.Glog {
		l, _ := letterLevel(line[at.From])
		return find{l, at.From, at.From + 1, "the letter of glog"}
	}
	h := head{b: line[:min(len(line), levelWithin)], at: at}
	for range levelWords {
		if !h.next() {
			break
		}
	}
	return h.find
}

// A head scans the words before the message of a text line. i is the index of the next word.
type head struct {
	b  []byte
	i  int
	at *stamp.Match
	find

	// These fields describe the text before b[i].
	timed  bool // the last word is the time
	column bool // a column separator is between the last word and the next, see following
	tagged bool // a program name with a colon was found
	php    bool // the word PHP was found
}

// next reads a word. It returns false when the search ends.
func (h *head) next() bool {
	h.separators()
	i := h.i
	if i == len(h.b) {
		return false
	}
	if to := h.at.To; i == h.at.From && i < to {
		if to > len(h.b) {
			return false
		}
		h.i, h.timed, h.tagged = to, true, false
		return true
	}
	timed := h.timed
	switch c := h.b[i]; c {
	case '[', '(', '<', '{':
		return h.bracket()
	case '"', '\'', '`':
		return false
	case '*', '#', '-', '.':
		if j := i + 1; j == len(h.b) || h.b[j] == ' ' {
			if h.i = j; timed && h.isRedis() {
				return h.found(redisLevel(c), i, j, "the mark of Redis")
			}
			return true
		}
	}
	h.i = h.wordEnd(i)
	h.timed = false
	return h.word(h.b[i:h.i], i, timed)
}

// found stores a level. It returns false, which ends the search.
func (h *head) found(l slog.Level, from, to int, why string) bool {
	h.find = find{l, from, to, why}
	return false
}

// separators skips the separators before the next word and sets column.
func (h *head) separators() {
	h.column = false
	from := h.i
	for ; h.i < len(h.b); h.i++ {
		switch h.b[h.i] {
		case ' ':
			h.column = h.column || h.i > from && h.b[h.i-1] == ' '
			continue
		case ',', ';', ':', ']', ')':
			continue
		case '\t', '|':
			h.column = true
			continue
		case '-':
			if h.isDash(h.i) && !(h.timed && h.isRedis()) {
				h.column = true
				continue
			}
		}
		return
	}
}

// isDash reports whether b[i] is a hyphen between spaces or at the start.
func (h *head) isDash(i int) bool {
	return i+1 < len(h.b) && h.b[i] == '-' && h.b[i+1] == ' ' && (i == 0 || h.b[i-1] == ' ')
}

// following returns the index of the next word. column reports whether that word is in another
// column: after a tab, '|', " - " or several spaces.
func (h *head) following() (next int, column bool) {
	next = h.i
	for ; next < len(h.b); next++ {
		switch c := h.b[next]; {
		case c == '\t' || c == '|' || h.isDash(next):
			column = true
		case c != ' ':
			return next, column || next > h.i+1 && h.b[next-2] == ' '
		}
	}
	return next, true
}

// wordEnd returns the end of the word that begins at b[i], including attached brackets and a quoted
// value.
func (h *head) wordEnd(i int) int {
	for ; i < len(h.b); i++ {
		switch c := h.b[i]; c {
		case ' ', '\t', '|', ',', ';':
			return i
		case '[', '(':
			if end := h.closed(i); end > 0 {
				i = end
			}
		case '"':
			n := bytes.IndexByte(h.b[i+1:], '"')
			if n < 0 {
				return len(h.b)
			}
			i += n + 1
		}
	}
	return i
}

// closed returns the index of the bracket that closes b[i], or 0.
func (h *head) closed(i int) int {
	open, depth := h.b[i], 0
	shut := open + 2
	if open == '(' {
		shut = ')'
	}
	if bytes.IndexByte(h.b[i:], shut) < 0 { // usual for a line of JSON that is read as text
		return 0
	}
	for ; i < len(h.b); i++ {
		switch h.b[i] {
		case open:
			depth++
		case shut:
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return 0
}

// bracket reads the text in the brackets that begin at b[i]. It returns false when the search ends.
func (h *head) bracket() bool {
	from, end := h.i, h.closed(h.i)
	if end == 0 {
		h.i++ // the closing bracket can be beyond levelWithin
		return from == 0
	}
	text := h.b[from+1 : end]
	h.i = end + 1
	if word := bytes.Trim(text, " "); len(word) > 0 && isLetter(word[0]) {
		if i := bytes.LastIndexByte(word, ':'); i > 0 && bytes.IndexByte(word, ' ') < 0 { // [core:error] of Apache
			word = word[i+1:]
		}
		l, ok := levelOf(word)
		if ok || h.isNote(word, from) {
			return h.found(l, from, end+1, "a level in brackets")
		}
	}
	for i := 0; i < len(text); i++ { // [10:11:12 INF], [10:11:12,123: INFO/Main], [main/INFO]
		j := i
		for j < len(text) && isLetter(text[j]) {
			j++
		}
		if j == i {
			continue
		}
		if l, ok := levelOf(text[i:j]); ok && isUpper(text[i:j]) && isEdge(text, i-1) && isEdge(text, j) {
			return h.found(l, from+1+i, from+1+j, "a level in brackets")
		}
		i = j
	}
	if h.timed = h.at.From > from && h.at.To <= end || isClock(text); h.timed {
		h.tagged = false
	}
	return true
}

// isEdge reports whether text[i] separates words in brackets. The beginning and the end of text
// also separate words.
func isEdge(text []byte, i int) bool {
	return i < 0 || i >= len(text) || strings.IndexByte(" :/,|", text[i]) >= 0
}

// isNote reports whether the word in the bracket at b[from] is a level that only MySQL uses. Such a
// level follows the time or a thread number.
func (h *head) isNote(word []byte, from int) bool {
	front := bytes.TrimRight(h.b[:from], " ")
	return (string(word) == "Note" || string(word) == "System") && (h.timed || len(front) > 0 && isDigit(front[len(front)-1]))
}

// word reads the word w = b[from:h.i]. timed reports whether the previous word is the time. It
// returns false when the search ends.
func (h *head) word(w []byte, from int, timed bool) bool {
	n := 0
	for n < len(w) && isLetter(w[n]) {
		n++
	}
	if n > 0 && n < len(w) && isDigit(w[n]) { // debug1
		n++
	}
	name, rest := w[:n], w[n:]
	upper := isUpper(name)
	if l, ok := levelOf(name); ok || upper && string(name) == "LOG" && len(rest) > 0 { // LOG: of PostgreSQL
		why := ""
		switch {
		case len(rest) == 0:
			_, column := h.following()
			if upper || h.column && column || timed && h.isColumn(name) || h.php {
				why = "a level in a column"
			}
		case rest[0] == ':' && (upper || len(rest) == 1 && isPrefix(name)):
			why = "a level before the message"
		case upper && len(rest) > 1 && (rest[0] == '[' && isDigit(rest[1]) || strings.IndexByte("])>-", rest[0]) >= 0 && len(rest) == 1): // INFO[0003] of logrus
			why = "a level in a column"
		}
		if why != "" {
			return h.found(l, from, from+n, why)
		}
	}
	if string(w) == "fail:" { // .NET
		return h.found(slog.LevelError, from, from+len("fail"), "a level before the message")
	}
	odd := n // index of the first byte that is no letter
	if n > 0 && isDigit(w[n-1]) {
		odd--
	}
	if odd < len(w) {
		if l, why := deviceLevel(w); why != "" {
			return h.found(l, from, from+len(w), why)
		}
		if key, value, ok := bytes.Cut(w, equals); ok {
			if l, ok := fieldLevel(key, bytes.Trim(value, `"'`)); ok && isLevelKey(key) {
				return h.found(l, from, from+len(w), "a field of the level")
			}
			return len(key) > 0 && string(key) != "msg" && string(key) != "message"
		}
	}
	if from < h.at.From && h.at.From < h.i && h.at.To <= len(h.b) { // w contains the time
		h.i, h.timed = h.at.To, true
		return true
	}
	switch {
	case w[len(w)-1] == ':':
		ok := !h.tagged || odd < len(w)-1
		h.tagged = true
		return ok
	case isClock(w):
		h.timed = true
		return true
	case odd < len(w):
		return !isProse(w, odd)
	case string(w) == "PHP":
		h.php = true
		return true
	case string(w) == "RAS": // BlueGene: the component follows
		h.separators()
		h.i = h.wordEnd(h.i)
		return true
	case timed && upper && len(w) <= 5: // a time zone
		h.timed = true
		return true
	case h.at.From >= h.i && len(bytes.Trim(h.b[h.i:h.at.From], " ,[(<|")) == 0 && h.at.To > 0: // the time follows
		return true
	}
	if _, column := h.following(); column {
		return h.i < len(h.b)
	}
	return timed && h.isHost()
}

var equals = []byte{'='}

// isProse reports whether w is a word of a sentence: only letters, optionally followed by an
// apostrophe or one final punctuation mark. odd is the index of the first byte that is no letter.
func isProse(w []byte, odd int) bool {
	return odd == len(w) || w[odd] == '\'' || odd == len(w)-1 && strings.IndexByte(".!?", w[odd]) >= 0
}

// isColumn reports whether name is in a separate column, after the time. This is the case if
// another column or a word that is not prose follows name. In such a column, even error and warning
// are levels in lower case; elsewhere they may begin a sentence.
func (h *head) isColumn(name []byte) bool {
	at, column := h.following()
	if column {
		return true
	}
	switch strings.ToLower(string(name)) {
	case "error", "warn", "warning", "fatal":
		return true
	}
	next, odd := h.b[at:h.wordEnd(at)], 0
	for odd < len(next) && isLetter(next[odd]) {
		odd++
	}
	return !isProse(next, odd)
}

// isPrefix reports whether name, which is not in upper case, can be a level before a colon and the
// message. It returns false for words such as config and trace, because "trace: x" may be about a
// trace.
func isPrefix(name []byte) bool {
	switch strings.ToLower(string(name)) {
	case "config", "fine", "finer", "finest", "trace", "verbose":
		return false
	}
	return true
}

// isHost reports whether the word before b[i] is a host, because the name of a program follows.
func (h *head) isHost() bool {
	if h.at.Form == nil || !h.at.Form.Host {
		return false
	}
	i, _ := h.following()
	next := h.b[i:h.wordEnd(i)]
	_, ok := facilityLevel(next)
	return ok || len(next) > 0 && (next[0] == '%' || next[len(next)-1] == ':' || next[len(next)-1] == ']')
}

// isRedis reports whether the line begins with the process and role of Redis: 1:M or [1].
func (h *head) isRedis() bool {
	pid, rest, ok := bytes.Cut(h.b[:min(len(h.b), 16)], []byte{' '})
	if !ok || len(rest) == 0 || !isDigit(rest[0]) || len(pid) < 3 {
		return false
	}
	if n := len(pid) - 2; pid[n] == ':' && strings.IndexByte("XCSM", pid[n+1]) >= 0 {
		return isNumber(pid[:n])
	}
	return pid[0] == '[' && pid[len(pid)-1] == ']' && isNumber(pid[1:len(pid)-1])
}

// redisLevel returns the level for a mark of Redis: "." is debug, "-" verbose, "*" notice, "#"
// warning.
func redisLevel(mark byte) slog.Level {
	switch mark {
	case '.':
		return slog.LevelDebug
	case '#':
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// deviceLevel parses the level formats of devices: %SYS-5-CONFIG_I: of Cisco, In(182) and
// cpu3:2097152)WARNING: of ESXi, daemon.info of BusyBox.
func deviceLevel(w []byte) (l slog.Level, why string) {
	if w[0] == '%' {
		for i := 2; i+2 < len(w); i++ {
			if w[i-1] == '-' && isDigit(w[i]) && w[i] < '8' && w[i+1] == '-' {
				return SyslogLevel(int(w[i] - '0')), "the severity of Cisco"
			}
		}
		return 0, ""
	}
	if len(w) > 4 && w[2] == '(' && w[len(w)-1] == ')' && isNumber(w[3:len(w)-1]) && len(w) < 8 {
		if i := slices.Index(shortSeverities, string(w[:2])); i >= 0 && int(w[len(w)-2]-'0')&1 == i&1 {
			return SyslogLevel(i), "the severity of ESXi"
		}
	}
	if i := bytes.IndexByte(w, ')'); i > 0 && w[len(w)-1] == ':' && i < len(w)-2 && isDigit(w[i-1]) {
		if l, ok := levelOf(w[i+1 : len(w)-1]); ok && isUpper(w[i+1:len(w)-1]) {
			return l, "the level of ESXi"
		}
	}
	if l, ok := facilityLevel(w); ok {
		return l, "facility and severity"
	}
	return 0, ""
}

// shortSeverities has the abbreviations of ESXi, by syslog severity.
var shortSeverities = []string{"Em", "Al", "Cr", "Er", "Wa", "No", "In", "Db"}

// facilities has the names of the syslog facilities, each between spaces.
const facilities = " kern user mail daemon auth syslog lpr news uucp cron authpriv ftp local0 local1 local2 local3 local4 local5 local6 local7 "

// facilityLevel parses a facility and a severity, as in daemon.info, with the names of
// syslog.conf(5).
func facilityLevel(w []byte) (slog.Level, bool) {
	facility, severity, _ := bytes.Cut(bytes.TrimRight(w, ":"), []byte{'.'})
	l, ok := levelOf(severity)
	return l, ok && strings.Contains(facilities, " "+string(facility)+" ")
}

// isClock reports whether word begins with a time of day, hours to seconds.
func isClock(word []byte) bool {
	return len(word) >= len("15:04:05") && isDigit(word[0]) && isDigit(word[1]) && word[2] == ':' && isDigit(word[3]) && word[5] == ':' && isDigit(word[6])
}

// prefixLevel parses a level at the start of a line, in one of these formats:
//
//	<34>                             priority of syslog
//	01-02 15:04:05.999 12 34 E Tag:  letter of Android; a user may precede the process id
//	E/Tag( 12):                      letter of Android; the time may precede the letter
//	[E 15:04:05                      letter of Tornado
func prefixLevel(line []byte) (f find) {
	if len(line) < 3 {
		return f
	}
	l, ok := slog.LevelInfo, false
	switch {
	case line[0] == '<':
		n, i := 0, 1
		for ; i < len(line) && i < 4 && isDigit(line[i]); i++ {
			n = n*10 + int(line[i]-'0')
		}
		if i > 1 && i < len(line) && line[i] == '>' && n <= 191 {
			return find{SyslogLevel(n & 7), 0, i + 1, "the priority of syslog"}
		}
	case line[1] == '/':
		l, f.to, ok = androidLevel(line)
		f.why = "the letter of Android"
	case line[0] == '[' && line[2] == ' ' && len(line) > 3 && isDigit(line[3]): // [I 15:04:05 of Tornado
		l, ok = letterLevel(line[1])
		f.from, f.to, f.why = 1, 2, "the letter of Tornado"
	case len(line) > 18 && line[2] == '-' && line[5] == ' ' && line[8] == ':' && line[11] == ':' && line[14] == '.':
		l, f.to, ok = androidLevel(line)
		f.why = "the letter of Android"
	}
	f.level = l
	if !ok {
		return find{}
	}
	return f
}

// android matches the formats of logcat: -v brief and -v time (I/Tag( 12):), and -v threadtime,
// whose columns end with the letter. Each format can include a user: a number, an app such as
// u0_a12 or an Android user name. The last alternative requires a tag after the letter.
var android = lazy.Regexp(`^(?:\d\d-\d\d [\d:]{8}\.\d+ )?([A-Z])/[^ (]+ *\( *(?:` + androidUser + `: *)?\d+\):` +
	`|^\d\d-\d\d [\d:]{8}\.\d+ +(?:\d+ +\d+ +([A-Z]) \S|` + androidUser + ` +\d+ +\d+ +([A-Z]) .*:)`)

// androidUser matches a user in the output of logcat.
const androidUser = `(?:\d+|u\d+_[a-z][ais]*\d+|root|system|radio|shell|wifi|media|logd|log|audio|cache|nfc|drm|gps|vpn|vold|nobody)`

// androidLevel parses the level letter of a line of Android. end is the index after the letter.
func androidLevel(line []byte) (l slog.Level, end int, ok bool) {
	m := android().FindSubmatchIndex(line[:min(len(line), levelWithin)])
	for i := 2; i < len(m); i += 2 {
		if m[i] >= 0 {
			l, ok = letterLevel(line[m[i]])
			return l, m[i+1], ok
		}
	}
	return 0, 0, false
}

// letterLevel returns the level for a letter of Android, glog or Tornado.
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
