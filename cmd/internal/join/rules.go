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

// Rules define which lines form one record. They are immutable.
type Rules struct {
	cri, docker bool
	rules       []rule
}

// A rule knows records of several lines. State 0 is that no record is open.
type rule interface {
	// names returns the names of the rule in [Names].
	names() []string
	// next returns the state after line. If it joins, line belongs to the open record,
	// whose state is given; else it begins a record, which is open for more lines
	// unless the state is 0.
	next(state uint8, line []byte) (after uint8, joins bool)
}

// Names are the names that [Parse] accepts, in addition to patterns.
var Names = []string{"auto", "cri", "docker", "go", "java", "dotnet", "node", "python", "ruby", "rust"}

// Parse reads names and patterns. It returns nil for none.
//
// A pattern is a regular expression for the first line of a record.
func Parse(names []string) (*Rules, error) {
	if len(names) == 0 {
		return nil, nil
	}
	j := &Rules{}
	var own *pattern
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
			re, err := regexp.Compile(name)
			if err != nil {
				return nil, fmt.Errorf("%q is neither one of %s nor a regular expression: %s", name, strings.Join(Names, ", "), strings.TrimPrefix(err.Error(), "error parsing regexp: "))
			}
			if own != nil {
				return nil, fmt.Errorf("%q and %q are two patterns: combine them as A|B", own.re, name)
			}
			own = &pattern{re}
		}
	}
	j.cri, j.docker = wanted["cri"], wanted["docker"]
	// exceptionRule is last because it accepts any line with ERROR, which may also begin another
	// trace.
	for _, r := range []rule{goRule{}, pythonRule{}, rubyRule{}, rustRule{errors: !wanted["node"]}, exceptionRule{}} {
		if slices.ContainsFunc(r.names(), func(name string) bool { return wanted[name] }) {
			j.rules = append(j.rules, r)
		}
	}
	if own != nil {
		if len(j.rules) > 0 {
			return nil, fmt.Errorf("the pattern %q defines where each record begins: remove the trace names such as go and java", own.re)
		}
		j.rules = []rule{own}
	}
	return j, nil
}

// unwrap returns what a container runtime has wrapped in line.
func (j *Rules) unwrap(line []byte) (w wrapped, ok bool) {
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

// Bare reports a line that is not in the format of a container runtime although it should be.
const Bare = "a line is not in the format of a container runtime; such lines are delivered unchanged"

// wraps reports whether lines are expected to be wrapped.
func (j *Rules) wraps() bool { return (j.cri || j.docker) && !(j.cri && j.docker) }

// begin returns the rule for a record that line begins, nil if no more lines belong to
// it.
func (j *Rules) begin(line []byte) (rule, uint8) {
	for _, r := range j.rules {
		if state, _ := r.next(0, line); state != 0 {
			return r, state
		}
	}
	return nil, 0
}

// pattern is the rule of a user: its lines begin records, all others join.
type pattern struct{ re *regexp.Regexp }

func (*pattern) names() []string { return nil }

func (p *pattern) next(state uint8, line []byte) (uint8, bool) {
	return 1, state != 0 && !p.re.Match(TrimEnd(line))
}

// goRule joins panics, fatal errors, fatal signals and goroutine dumps.
//
//	0 ──the runtime gives the reason ──▶ goTold ──fatal error, PC──▶ goHead
//	├──────────── panic, fatal error ──────────────────────────────▶ goHead ──▶ goFrames
//	└──────────── a goroutine ────────────────────────────────────────────────▶ goFrames
//
// An empty line separates goroutines, and the head from the first of them.
type goRule struct{}

func (goRule) names() []string { return []string{"go"} }

const (
	goHead   uint8 = 1 + iota // after the reason for the end of the program: goroutines follow
	goTold                    // the line in front of that
	goFrames                  // in a goroutine, or among the registers
	goBlank                   // after an empty line
	goDashes                  // after the line between two threads
)

var (
	// A line may end in the head of a goroutine: log.Printf("%s", debug.Stack()) has its time
	// in front.
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
	case goTold:
		switch {
		case has("runtime: sp="):
			return goTold, true
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
			return goTold, true
		}
	}
	header := bytes.HasSuffix(line, []byte("]:")) && goHeader().Match(line)
	switch state {
	case goHead, goBlank, goFrames:
		switch {
		case header && has("goroutine ") && (state != goFrames || bytes.Contains(line, []byte(" gp=0x"))):
			return goFrames, true // after frames, it belongs to a crash, or to another trace
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
		return goTold, false
	}
	return 0, false
}

// isCall reports whether line is a function with its arguments: main.(*T).do(0x1, {0x2?, ...}).
// Its name has a dot, except panic, loops in assembler and what cgo has made.
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

// isServing reports whether line is the report of net/http that a handler has panicked.
func isServing(line []byte) bool {
	before, _, ok := bytes.Cut(line, []byte(": panic serving "))
	return ok && (bytes.HasSuffix(before, []byte("http")) || bytes.HasSuffix(before, []byte("http2")))
}

// pythonRule knows tracebacks, chained ones and groups of exceptions included.
//
//	0 ──▶ pyFrames ──▶ pyError ──┬─▶ pyBlank ──▶ pyChained ──▶ pyFrames, pyGroup
//	└───▶ pyGroup ───▶ pyEnded ──┘
type pythonRule struct{}

func (pythonRule) names() []string { return []string{"python"} }

const (
	pyFrames  uint8 = 1 + iota
	pyError         // after the line with the exception
	pyBlank         // and an empty line
	pyChained       // and "During handling of …"
	pyGroup         // in a group, all lines of which have a margin
	pyEnded         // after the last one
)

var (
	pyHead      = []byte("Traceback (most recent call last):")
	pyGroupHead = []byte("+ Exception Group Traceback (most recent call last):")
	pyMargin    = lazy.Regexp(`^\s+(?:\+-|\|(?:\s|$))`)
	pyGroupEnd  = lazy.Regexp(`^ {4}\+-{10,}$`)                         // of the outermost group
	pyBareGroup = lazy.Regexp(`^  \| \S.* \([0-9]+ sub-exceptions?\)$`) // one that was not raised
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
