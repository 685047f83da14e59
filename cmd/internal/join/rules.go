package join

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/forebay-log/forebay/internal/lazy"
)

// Rules determine which lines form a record. They are immutable and may be shared.
type Rules struct {
	cri, docker bool
	rules       []rule
}

// A rule is a state machine that recognizes records of several lines. In state 0, no record is
// incomplete.
type rule interface {
	// names returns those elements of [Names] that select the rule.
	names() []string
	// next returns the state after a line. The parameter state is the current state. If joins is
	// true, line belongs to the incomplete record. If joins is false, line begins a new record. If
	// the new state is 0, the record is complete.
	next(state uint8, line []byte) (after uint8, joins bool)
}

// Names contains the names of rules that [Parse] accepts. All other texts are patterns.
var Names = []string{"auto", "cri", "docker", "go", "java", "dotnet", "node", "python", "ruby", "rust"}

// Parse returns the rules for names, which may contain a pattern: a regular expression that matches
// the first line of each record. If names is empty, Parse returns nil.
func Parse(names []string) (*Rules, error) {
	if len(names) == 0 {
		return nil, nil
	}
	j := &Rules{}
	var userPattern *pattern
	wanted := map[string]bool{}
	for _, name := range names {
		switch name {
		case "":
			return nil, errors.New("it is empty")
		case "auto":
			for _, name := range Names {
				wanted[name] = true
			}
		case "cri", "docker", "go", "java", "dotnet", "node", "python", "ruby", "rust":
			wanted[name] = true
		default:
			if isWord(name) {
				return nil, fmt.Errorf("%q is not one of %s; for lines that begin with it, write ^%s", name, strings.Join(Names, ", "), name)
			}
			re, err := regexp.Compile(name)
			if err != nil {
				return nil, fmt.Errorf("%q is neither one of %s nor a regular expression: %s", name, strings.Join(Names, ", "), strings.TrimPrefix(err.Error(), "error parsing regexp: "))
			}
			if userPattern != nil {
				return nil, fmt.Errorf("%q and %q are two patterns: combine them as A|B", userPattern.re, name)
			}
			userPattern = &pattern{re}
		}
	}
	j.cri, j.docker = wanted["cri"], wanted["docker"]
	// exceptionRule must be the last rule. Every line with ERROR matches it, even if a trace of
	// another language begins in the line.
	for _, r := range []rule{goRule{}, pythonRule{}, rubyRule{}, rustRule{errors: !wanted["node"]}, exceptionRule{}} {
		if slices.ContainsFunc(r.names(), func(name string) bool { return wanted[name] }) {
			j.rules = append(j.rules, r)
		}
	}
	if userPattern != nil {
		if len(j.rules) > 0 {
			return nil, fmt.Errorf("the pattern %q defines where each record begins: remove the trace names such as go and java", userPattern.re)
		}
		j.rules = []rule{userPattern}
	}
	return j, nil
}

// isWord reports whether name consists of lower-case letters. Parse rejects such a text as a
// misspelled name, although it is a valid pattern.
func isWord(name string) bool {
	return strings.Trim(name, "abcdefghijklmnopqrstuvwxyz") == ""
}

// parseContainerLine parses a line in the selected formats of container runtimes. ok is false if
// line has none of them.
func (j *Rules) parseContainerLine(line []byte) (w containerLine, ok bool) {
	if j.cri {
		if w, ok = parseCRI(line); ok {
			return w, true
		}
	}
	if j.docker {
		return parseDocker(line)
	}
	return w, false
}

// Bare is the message about a line that should have the format of a container runtime but does not.
const Bare = "a line is not in the format of a container runtime; such lines are delivered unchanged"

// requiresContainerLine reports whether every line should have the format of a container runtime.
// It returns false if both formats are selected, because auto selects both.
func (j *Rules) requiresContainerLine() bool { return (j.cri || j.docker) && !(j.cri && j.docker) }

// begin returns the rule that recognizes line as the beginning of a record, and the state of the
// rule. If there is no such rule, line is a complete record, and begin returns nil.
func (j *Rules) begin(line []byte) (rule, uint8) {
	for _, r := range j.rules {
		if state, _ := r.next(0, line); state != 0 {
			return r, state
		}
	}
	return nil, 0
}

// A pattern is the rule for a user-supplied regular expression. A line that matches begins a
// record. All other lines belong to the previous record.
type pattern struct{ re *regexp.Regexp }

func (*pattern) names() []string { return nil }

func (p *pattern) next(state uint8, line []byte) (uint8, bool) {
	return 1, state != 0 && !p.re.Match(TrimEnd(line))
}

// goRule joins panics, fatal errors, fatal signals and goroutine dumps.
//
//	0 ──the runtime prints the reason ─▶ goReason ─fatal error, PC─▶ goHead
//	├──────────── panic, fatal error ──────────────────────────────▶ goHead ──▶ goFrames
//	└──────────── a goroutine ────────────────────────────────────────────────▶ goFrames
//
// An empty line separates the goroutines from each other and from the lines before them.
type goRule struct{}

func (goRule) names() []string { return []string{"go"} }

const (
	goHead   uint8 = 1 + iota // after the line with the panic or fatal error; goroutines follow
	goReason                  // after the line with the reason; the line with the fatal error follows
	goFrames                  // within the frames of a goroutine or a list of registers
	goBlank                   // after an empty line
	goDashes                  // after the line of dashes between two threads
)

var (
	// goHeader matches the first line of a goroutine, even if other text precedes it on the line,
	// such as the time that log.Printf("%s", debug.Stack()) prints.
	goHeader  = lazy.Regexp(`(?:^|\W)goroutine [0-9]+ (?:[a-z]+=\w+ )*\[.+\]:$`)
	goBetween = lazy.Regexp(`^created by \S+\.\S+(?: in goroutine [0-9]+)?$|^\[originating from goroutine [0-9]+\]:$` +
		`|^\.\.\.(?:[0-9]+|additional) frames elided\.\.\.$|^non-Go function(?: at pc=0x[0-9a-f]+)?$`)
	goDotless  = lazy.Regexp(`^(?:panic|[a-z]+body|_?cgoexp_\w+|crosscall2)$`)
	goRegister = lazy.Regexp(`^[a-z][a-z0-9]{1,7} +0x[0-9a-f]+$`)
	goSignal   = lazy.Regexp(`^SIG[A-Z]{2,}: [a-z]`)
)

func (goRule) next(state uint8, line []byte) (uint8, bool) {
	line = TrimEnd(line)
	has := func(prefix string) bool { return bytes.HasPrefix(line, []byte(prefix)) }
	switch state {
	case goReason:
		switch {
		case has("runtime: sp="):
			return goReason, true
		case has("fatal error: "), has("PC=0x"):
			return goHead, true
		}
	case goHead:
		switch {
		case has("\t"), has("[signal "), has("signal arrived during "), has("instruction bytes: "):
			return goHead, true
		}
	case goFrames:
		if has("\t") || isCall(line) || goBetween().Match(line) || goRegister().Match(line) {
			return goFrames, true
		}
	case goBlank:
		switch {
		case has("\t"), goRegister().Match(line):
			return goFrames, true
		case bytes.Equal(line, []byte("-----")):
			return goDashes, true
		}
	case goDashes:
		if goSignal().Match(line) {
			return goReason, true
		}
	}
	header := bytes.HasSuffix(line, []byte("]:")) && goHeader().Match(line)
	switch state {
	case goHead, goBlank, goFrames:
		switch {
		case header && has("goroutine ") && (state != goFrames || bytes.Contains(line, []byte(" gp=0x"))):
			return goFrames, true // after frames, only a header with gp= belongs to the same crash
		case state != goFrames && has("runtime stack:"):
			return goFrames, true
		case has("exit status "):
			return 0, true
		case len(line) == 0:
			return goBlank, true
		}
	case goDashes:
		if len(line) == 0 {
			return goDashes, true
		}
	}
	switch {
	case header:
		return goFrames, false
	case has("panic: "), has("fatal error: "), isServing(line):
		return goHead, false
	case has("runtime: goroutine stack exceeds "), has("runtime: program exceeds "), has("unexpected fault address 0x"),
		has("SIG") && goSignal().Match(line):
		return goReason, false
	}
	return 0, false
}

// isCall reports whether line is a call with arguments, such as main.(*T).do(0x1, {0x2?, ...}). The
// function name must contain a dot, except for panic, assembler loops and functions generated by
// cgo.
func isCall(line []byte) bool {
	open := bytes.LastIndexByte(line, '(')
	if open <= 0 || line[len(line)-1] != ')' || bytes.IndexByte(line[:open], ' ') >= 0 {
		return false
	}
	for _, c := range line[open+1 : len(line)-1] {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') && strings.IndexByte("x{}?_., ", c) < 0 {
			return false
		}
	}
	return bytes.IndexByte(line[:open], '.') > 0 || goDotless().Match(line[:open])
}

// isServing reports whether line is the message that net/http logs when a handler panics.
func isServing(line []byte) bool {
	before, _, ok := bytes.Cut(line, []byte(": panic serving "))
	return ok && (bytes.HasSuffix(before, []byte("http")) || bytes.HasSuffix(before, []byte("http2")))
}

// pythonRule recognizes tracebacks, including chained ones and exception groups.
//
//	0 ──▶ pyFrames ──▶ pyError ──┬─▶ pyBlank ──▶ pyChained ──▶ pyFrames, pyGroup
//	└───▶ pyGroup ───▶ pyEnded ──┘
type pythonRule struct{}

func (pythonRule) names() []string { return []string{"python"} }

const (
	pyFrames  uint8 = 1 + iota
	pyError         // after the line that describes the exception
	pyBlank         // after the empty line that follows the exception
	pyChained       // after "During handling of …"
	pyGroup         // within an exception group, whose lines begin with a margin of "|" or "+"
	pyEnded         // after the last line of an exception group
)

var (
	pyHead      = []byte("Traceback (most recent call last):")
	pyGroupHead = []byte("+ Exception Group Traceback (most recent call last):")
	pyMargin    = lazy.Regexp(`^\s+(?:\+-|\|(?:\s|$))`)
	pyGroupEnd  = lazy.Regexp(`^ {4}\+-{10,}$`)                         // end of the outermost group
	pyBareGroup = lazy.Regexp(`^  \| \S.* \([0-9]+ sub-exceptions?\)$`) // a group that was printed but not raised
)

func (pythonRule) next(state uint8, line []byte) (uint8, bool) {
	line = TrimEnd(line)
	begins := uint8(0)
	switch {
	case bytes.HasSuffix(line, pyGroupHead), bytes.HasPrefix(line, []byte("  | ")) && state != pyGroup && pyBareGroup().Match(line):
		begins = pyGroup
	case bytes.HasSuffix(line, pyHead):
		begins = pyFrames
	}
	indented := len(line) > 0 && (line[0] == ' ' || line[0] == '\t')
	switch {
	case state == pyFrames && indented:
		return pyFrames, true
	case state == pyFrames && len(line) > 0 && begins == 0:
		return pyError, true
	case state == pyError && indented && begins == 0:
		return pyError, true
	case state == pyGroup && pyGroupEnd().Match(line):
		return pyEnded, true
	case state == pyGroup && pyMargin().Match(line):
		return pyGroup, true
	case len(line) == 0 && (state == pyError || state == pyGroup || state == pyEnded || state == pyBlank):
		return pyBlank, true
	case state == pyBlank && (bytes.HasPrefix(line, []byte("During handling of the above exception")) ||
		bytes.HasPrefix(line, []byte("The above exception was the direct cause"))):
		return pyChained, true
	case state == pyChained && len(line) == 0:
		return pyChained, true
	}
	return begins, state == pyChained && begins != 0
}
