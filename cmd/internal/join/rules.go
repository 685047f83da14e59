package join

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Rules say which lines are one record. They do not change.
type Rules struct {
	cri, docker bool
	rules       []rule
}

// A rule knows records of several lines. State 0 is that no record is open.
type rule interface {
	// next returns the state after line. If it joins, line belongs to the open record,
	// whose state is given; else it begins a record, which is open for more lines
	// unless the state is 0.
	next(state uint8, line []byte) (after uint8, joins bool)
}

// Names are what [Parse] knows, besides patterns.
var Names = []string{"auto", "cri", "docker", "go", "java", "python"}

// Parse reads names and patterns. It returns nil for none.
//
// A pattern is a regular expression for the first line of a record.
func Parse(names []string) (*Rules, error) {
	if len(names) == 0 {
		return nil, nil
	}
	j := &Rules{}
	var own *pattern
	for _, name := range names {
		switch name {
		case "":
			return nil, errors.New("it is empty")
		case "auto":
			j.cri, j.docker = true, true
			j.rules = append(j.rules, goRule{}, javaRule{}, pythonRule{})
		case "cri":
			j.cri = true
		case "docker":
			j.docker = true
		case "go":
			j.rules = append(j.rules, goRule{})
		case "java":
			j.rules = append(j.rules, javaRule{})
		case "python":
			j.rules = append(j.rules, pythonRule{})
		default:
			re, err := regexp.Compile(name)
			if err != nil {
				return nil, fmt.Errorf("it is none of %s and no regular expression: %s", strings.Join(Names, ", "), strings.TrimPrefix(err.Error(), "error parsing regexp: "))
			}
			if own != nil {
				return nil, fmt.Errorf("%q and %q are two patterns: write one, as A|B", own.re, name)
			}
			own = &pattern{re}
		}
	}
	if own != nil {
		if len(j.rules) > 0 {
			return nil, fmt.Errorf("the pattern %q says where each record begins: go, java, python and auto have no place beside it", own.re)
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

// Bare says what a line is that should be wrapped and is not.
const Bare = "a line is not as a container runtime writes it; such lines are delivered as they are"

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

func (p *pattern) next(state uint8, line []byte) (uint8, bool) {
	return 1, state != 0 && !p.re.Match(TrimEnd(line))
}

// goRule knows panics, fatal errors and dumps of goroutines.
type goRule struct{}

const (
	goTrace uint8 = 1 + iota
	goBlank       // behind an empty line
)

var (
	goRegister = regexp.MustCompile(`^[a-z][a-z0-9]{1,7} +0x[0-9a-f]+$`)
	goSignal   = regexp.MustCompile(`^SIG[A-Z0-9]+: `)
	goHead     = regexp.MustCompile(`(?:^|\s)goroutine \d+ .*\[.+\]:$|^goroutine .*\]:$`)
)

func (goRule) next(state uint8, line []byte) (uint8, bool) {
	line = TrimEnd(line)
	has := func(prefix string) bool { return bytes.HasPrefix(line, []byte(prefix)) }
	if state == 0 {
		if has("panic: ") || has("fatal error: ") || has("SIG") && goSignal.Match(line) ||
			bytes.HasSuffix(line, []byte("]:")) && goHead.Match(line) || // also what log has made of debug.Stack
			bytes.Contains(line, []byte("http: panic serving ")) {
			return goTrace, false
		}
		return 0, false
	}
	switch {
	case len(line) == 0:
		return goBlank, true
	case has("goroutine "), has("\t"), has("[signal "), has("exit status "), has("runtime stack:"), has("PC=0x"), goRegister.Match(line):
		return goTrace, true
	case state == goTrace && (has("panic: ") || has("created by ") || has("...") || isCall(line)):
		return goTrace, true
	}
	after, _ := goRule{}.next(0, line)
	return after, false
}

// isCall reports whether line is a function with its arguments: main.(*T).do(0x1, ...), or
// panic({0x1, 0x2}), which alone has no package.
func isCall(line []byte) bool {
	open := bytes.IndexByte(line, '(')
	return open > 0 && line[len(line)-1] == ')' && bytes.IndexByte(line[:open], ' ') < 0 &&
		(bytes.IndexByte(line[:open], '.') > 0 || string(line[:open]) == "panic")
}

// javaRule knows stack traces of the JVM. They begin with a line that names an exception, or
// with one that tells of a failure in front of that.
//
//	0 ──a failure is told──▶ javaTold ──an exception, a frame──▶ javaTrace ◀─┐
//	└───────────────── an exception is named ────────────────────▶  └─frames─┘
type javaRule struct{}

const (
	javaTrace uint8 = 1 + iota
	javaTold        // the line in front: a trace may follow, or not
)

var (
	javaHead  = regexp.MustCompile(`(?:^|[^\w$.])(?:[A-Za-z_$][\w$]*\.)+[\w$]*(?:Exception|Error|Throwable)\b|^[A-Z][\w$]*(?:Exception|Error|Throwable)(?::|$)|Exception in thread "`)
	javaFirst = regexp.MustCompile(`^(?:(?:[A-Za-z_$][\w$]*\.)+[\w$]*(?:Exception|Error|Throwable)\b|[A-Z][\w$]*(?:Exception|Error|Throwable)(?::|$)|Exception in thread ")`)
	javaMore  = regexp.MustCompile(`^(?:\s+at \S|\s+\.\.\. \d+ |\s*Caused by: |\s*Suppressed: |\s+- (?:locked|waiting|parking) |\s+\[CIRCULAR REFERENCE)`)
)

func (javaRule) next(state uint8, line []byte) (uint8, bool) {
	line = TrimEnd(line)
	if len(line) == 0 {
		return 0, false
	}
	if state != 0 && (line[0] == ' ' || line[0] == '\t' || line[0] == 'C' || line[0] == 'S') && javaMore.Match(line) {
		return javaTrace, true
	}
	named := bytes.Contains(line, []byte("Exception")) || bytes.Contains(line, []byte("Error")) || bytes.Contains(line, []byte("Throwable"))
	switch {
	case named && state == javaTold && javaFirst.Match(line):
		return javaTrace, true
	case named && javaHead.Match(line):
		return javaTrace, false
	case tellsFailure(line):
		return javaTold, false
	}
	return 0, false
}

// failures are the levels of lines in front of traces.
var failures = [][]byte{[]byte("ERROR"), []byte("WARN"), []byte("SEVERE"), []byte("FATAL")}

// tellsFailure reports whether a line has one of these levels near its beginning, as a word.
// Lines of JSON have their trace within.
func tellsFailure(line []byte) bool {
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
		rest := bytes.TrimPrefix(head[i+len(level):], []byte("ING")) // of WARNING
		if len(rest) == 0 || !isLetter(rest[0]) {
			return true
		}
	}
	return false
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }

// pythonRule knows tracebacks, chained ones included.
type pythonRule struct{}

const (
	pyFrames  uint8 = 1 + iota
	pyError         // behind the line with the exception
	pyBlank         // and an empty line
	pyChained       // and "During handling of …"
)

var pyHead, pyGroup = []byte("Traceback (most recent call last):"), []byte("+ Exception Group ")

func (pythonRule) next(state uint8, line []byte) (uint8, bool) {
	line = TrimEnd(line)
	begins := bytes.HasSuffix(line, pyHead)
	indented := len(line) > 0 && (line[0] == ' ' || line[0] == '\t')
	frames := pyFrames
	if begins && bytes.HasPrefix(bytes.TrimLeft(line, " "), pyGroup) {
		frames = pyError // all of a group is indented: no line with the exception comes behind it
	}
	switch {
	case state == pyFrames && indented:
		return pyFrames, true
	case state == pyFrames && len(line) > 0 && !begins:
		return pyError, true
	case state == pyError && indented:
		return pyError, true
	case (state == pyError || state == pyBlank) && len(line) == 0:
		return pyBlank, true
	case state == pyBlank && (bytes.HasPrefix(line, []byte("During handling of the above exception")) ||
		bytes.HasPrefix(line, []byte("The above exception was the direct cause"))):
		return pyChained, true
	case state == pyChained && len(line) == 0:
		return pyChained, true
	case state == pyChained && begins:
		return frames, true
	case begins:
		return frames, false
	}
	return 0, false
}
