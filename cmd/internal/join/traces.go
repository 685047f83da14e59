package join

import (
	"bytes"

	"github.com/forebay-log/forebay/internal/lazy"
)

// exceptionRule recognizes stack traces of the JVM, .NET and Node. A trace begins with a line that
// names an exception. A log line about a failure may precede it. In Node, a trace may also begin
// with the position of an uncaught error and its line of source code.
//
//	0 ──a failure───────▶ exFailed ─an exception, a frame─▶ exTrace ◀── frames, causes
//	├──an exception───────────────────────────────────────▶ exTrace
//	└──a position──▶ exPosition ──source──▶ exSource ──^^^──▶ exCaret ──▶ exUncaught ◀── frames
//
// In exTrace and exUncaught, a line that ends in "{" leads to exProps, and a line that ends in
// "<---" leads to exInner.
type exceptionRule struct{}

const (
	exTrace    uint8 = 1 + iota
	exFailed         // after a log line about a failure; a trace may follow
	exPosition       // after the position of an uncaught error in Node
	exSource         // after the line of source code at the position
	exCaret          // after the line of ^ and ~ characters that follows the source code
	exUncaught       // within the frames of the uncaught error
	exEnded          // after the empty line that follows the frames; the version of Node may follow
	exProps          // within the properties of an error
	exInner          // after an inner exception of .NET, or the empty line that follows it
)

func (exceptionRule) names() []string { return []string{"java", "dotnet", "node"} }

var (
	exceptionHead  = lazy.Regexp(`(?:^|[^\w$.])(?:[A-Za-z_$][\w$]*\.)+[\w$]*(?:Exception|Error|Throwable)\b|^(?:Uncaught )?(?:[A-Z][\w$]*)?(?:Exception|Error|Throwable)(?: \[\w+\])?(?::|$)|Exception in thread "|^\(node:[0-9]+\) .*Error(?: \[\w+\])?:`)
	exceptionFirst = lazy.Regexp(`^(?:(?:[A-Za-z_$][\w$]*\.)+[\w$]*(?:Exception|Error|Throwable)\b|(?:[A-Z][\w$]*)?(?:Exception|Error|Throwable)(?::|$)|Exception in thread ")`)
	exceptionMore  = lazy.Regexp(`^(?:\s+at \S|\s+\.\.\. \d+ |\s*Caused by: |\s*Suppressed: |\s+- (?:locked|waiting|parking) |\s+\[CIRCULAR REFERENCE` +
		`|\s*---> \S|\s*--- End of |Parameter name: |Actual value was |Require stack:$|- (?:/|[A-Z]:))`)
	nodePosition = lazy.Regexp(`^(?:node:\S+|(?:file://|/|[A-Za-z]:[\\/])\S*\.[cm]?[jt]sx?):[0-9]+$`)
	carets       = lazy.Regexp(`^\s*[~^]+\s*$`)
)

func (exceptionRule) next(state uint8, line []byte) (uint8, bool) {
	line = TrimEnd(line)
	if len(line) == 0 {
		switch state {
		case exCaret, exInner:
			return state, true
		case exUncaught, exEnded:
			return exEnded, true
		}
		return 0, false
	}
	afterFrame := exTrace
	switch state {
	case exPosition:
		return exSource, true
	case exSource:
		if carets().Match(line) {
			return exCaret, true
		}
	case exCaret:
		return opens(line, exUncaught), true
	case exProps:
		if line[0] == ' ' || line[0] == '\t' {
			return exProps, true
		}
		if line[0] == '}' {
			return exUncaught, true
		}
	case exUncaught:
		afterFrame = exUncaught
	case exEnded:
		if bytes.HasPrefix(line, []byte("Node.js v")) {
			return 0, true
		}
	}
	if state != 0 && state < exSource || state == exUncaught || state == exInner {
		if bytes.IndexByte([]byte(" \tCSPAR-"), line[0]) >= 0 && exceptionMore().Match(line) {
			if bytes.HasSuffix(line, []byte("<---")) {
				return exInner, true
			}
			return opens(line, afterFrame), true
		}
	}
	named := bytes.Contains(line, []byte("Exception")) || bytes.Contains(line, []byte("Error")) || bytes.Contains(line, []byte("Throwable"))
	switch {
	case named && state == exFailed && exceptionFirst().Match(line):
		return exTrace, true
	case named && exceptionHead().Match(line):
		return opens(line, exTrace), false
	case hasFailureLevel(line):
		return exFailed, false
	case line[len(line)-1] <= '9' && nodePosition().Match(line):
		return exPosition, false
	}
	return 0, false
}

// opens returns exProps if line ends in the brace that opens the properties of an error. Otherwise
// it returns state.
func opens(line []byte, state uint8) uint8 {
	if bytes.HasSuffix(line, []byte(" {")) {
		return exProps
	}
	return state
}

// failures contains the levels of log lines that a trace may follow.
var failures = [][]byte{[]byte("ERROR"), []byte("WARN"), []byte("SEVERE"), []byte("FATAL")}

// hasFailureLevel reports whether one of the failures is a word near the beginning of line. It
// returns false for JSON, because a JSON line contains its whole trace.
func hasFailureLevel(line []byte) bool {
	const near = 120
	head := line[:min(len(line), near)]
	if head[0] == '{' {
		return false
	}
	for _, level := range failures {
		i := bytes.Index(head, level)
		if i < 0 || i > 0 && isLetter(head[i-1]) {
			continue
		}
		rest := bytes.TrimPrefix(head[i+len(level):], []byte("ING")) // WARNING also matches
		if len(rest) == 0 || !isLetter(rest[0]) {
			return true
		}
	}
	return false
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }

// rubyRule recognizes errors of Ruby. An error begins with a frame that contains the message and
// the class of the error, or with a log line that ends in the class. More frames follow, and after
// them the cause in the same format.
//
//	0 ──frame: message (Class)──▶ rubyHead ──an empty line──▶ rubyBlank ──▶ rubySource ──^^^─┐
//	│                              └──────────────frames──────────────▶ rubyTrace ◀──────────┘
//	└──message (Class)──▶ rubyReason ──frames──▶ rubyTrace
type rubyRule struct{}

const (
	rubyHead   uint8 = 1 + iota // after the frame with the message
	rubyBlank                   // after the empty line that follows rubyHead
	rubySource                  // after the line of source code that follows rubyBlank
	rubyReason                  // after the log line with the message
	rubyTrace                   // within the frames after the first one
)

func (rubyRule) names() []string { return []string{"ruby"} }

var (
	rubyError   = lazy.Regexp("^\\S+:[0-9]+:in [`'].+': (?:.* )?(?:\\([A-Z][\\w:]*\\)|unhandled exception)$")
	rubyFrame   = lazy.Regexp("^\\s*(?:[0-9]+: )?(?:from )?\\S.*:[0-9]+:in [`'].+'$|^\\s+\\.\\.\\. [0-9]+ levels\\.\\.\\.$|^Did you mean\\?")
	rubyMessage = lazy.Regexp(`\((?:[A-Z]\w*::)*[A-Z]\w*(?:Error|Exception|Failure|Interrupt|Invalid|NotFound)\)$`)
)

func (rubyRule) next(state uint8, line []byte) (uint8, bool) {
	line = TrimEnd(line)
	if state == rubySource && carets().Match(line) {
		return rubyHead, true
	}
	switch {
	case len(line) == 0:
		if state == rubyHead {
			return rubyBlank, true
		}
		return 0, false
	case state == rubyBlank:
		return rubySource, true
	case state != 0 && state != rubySource && rubyFrame().Match(line):
		return rubyTrace, true
	case bytes.Contains(line, []byte(":in ")) && rubyError().Match(line):
		return rubyHead, state == rubyTrace // if frames precede the line, it begins the cause
	case line[len(line)-1] == ')' && rubyMessage().Match(line):
		return rubyReason, false
	case bytes.Equal(line, pyHead): // Ruby 2.5 to 2.7 on a terminal
		return rubyTrace, false
	}
	return 0, false
}

// rustRule recognizes panics of Rust with their backtraces, and errors that main has returned, with
// their causes.
//
//	0 ──panicked at──▶ rustPanic ──message──▶ rustNote ──stack backtrace:──▶ rustTrace
//	└──Error: ──▶ rustError ──an empty line──▶ rustBlank ──Caused by:──▶ rustTrace
type rustRule struct {
	errors bool // "Error: " begins an error that main has returned; false if node is selected, because its errors also begin with "Error: "
}

const (
	rustPanic uint8 = 1 + iota // after the first line of a panic; the message follows
	rustNote                   // after the message of a panic
	rustTrace                  // within the backtrace or the causes
	rustError                  // after the line with the error
	rustBlank                  // after an empty line in an error
)

func (rustRule) names() []string { return []string{"rust"} }

var (
	rustHead   = lazy.Regexp(`^thread '.*' (?:\([0-9]+\) )?panicked at `)
	rustCauses = lazy.Regexp(`^(?:Caused by|Stack backtrace|Location):$`)
)

func (r rustRule) next(state uint8, line []byte) (uint8, bool) {
	line = TrimEnd(line)
	has := func(prefix string) bool { return bytes.HasPrefix(line, []byte(prefix)) }
	indented := has(" ") || has("\t")
	switch {
	case state == rustPanic && !rustHead().Match(line):
		return rustNote, true
	case state == rustNote && (indented || has("note: ")):
		return rustNote, true
	case state == rustNote && has("stack backtrace:"):
		return rustTrace, true
	case state == rustTrace && (indented || has("note: ")):
		return rustTrace, true
	case (state == rustError || state == rustTrace || state == rustBlank) && len(line) == 0:
		return rustBlank, true
	case state == rustBlank && rustCauses().Match(line):
		return rustTrace, true
	case has("thread '") && rustHead().Match(line):
		if line[len(line)-1] == ':' {
			return rustPanic, false
		}
		return rustNote, false // before Rust 1.73, this line also contains the message
	case r.errors && has("Error: "):
		return rustError, false
	}
	return 0, false
}
