package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// A mutant is a patch that breaks one promise, and the tests that must fail with it.
type mutant struct {
	name   string // name of the file without .patch
	breaks string // the broken promise
	tests  []target
	files  []filePatch
}

// A target is a set of tests in one package. Each of them must fail.
type target struct {
	pkg   string // directory, relative to the root of the repository
	run   string // pattern, as for go test -run; see tests
	tags  string
	race  bool
	tries int            // maximum number of runs until one fails
	limit string         // time limit of a run; "" means 3m
	shows *regexp.Regexp // must match the output of the tests; nil accepts any failure
}

// tests returns the patterns for which a test must fail. A list such as ^(TestOne|TestTwo)$ becomes
// one pattern for each test, so that each must fail. Any other pattern is returned unchanged: of
// the tests that match it, one must fail.
func (t *target) tests() []string {
	names := testNames.FindStringSubmatch(t.run)
	if names == nil {
		return []string{t.run}
	}
	all := strings.Split(names[1], "|")
	for i, name := range all {
		all[i] = "^" + name + "$"
	}
	return all
}

var testNames = regexp.MustCompile(`^\^\((\w+(?:\|\w+)*)\)\$$`)

type filePatch struct {
	name  string // relative to the root of the repository
	hunks []hunk
}

// A hunk replaces lines that occur exactly once in the file. The line numbers in the patch are
// ignored.
type hunk struct{ before, after string }

// parse parses a patch. The lines before the diff begin with "# ". The first of them describe the
// promise that the patch breaks; the others are settings:
//
//	# package: ./deliver                directory of the tests
//	# run: ^(TestOne|TestTwo)$          tests, each of which must fail; or any pattern of go test
//	# tags: forebay_points              build tags
//	# race: yes                         with the race detector
//	# tries: 40                         maximum number of runs until one fails; default 1
//	# limit: 20s                        time limit of a run; default 3m
//	# shows: order is broken            what the tests must print; "test timed out" for a hang
//
// Another "# package:" line begins the settings of further tests, which must fail too.
func parse(path string) (*mutant, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m := &mutant{name: strings.TrimSuffix(filepath.Base(path), ".patch")}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for no := 1; lines.Scan(); no++ {
		if err := m.line(lines.Text()); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", filepath.Base(path), no, err)
		}
	}
	if m.breaks == "" || len(m.tests) == 0 || len(m.files) == 0 {
		return nil, fmt.Errorf("%s: the promise, the package or the diff is missing", filepath.Base(path))
	}
	for _, t := range m.tests {
		if t.run == "" {
			return nil, fmt.Errorf("%s: no pattern of the tests of %s", filepath.Base(path), t.pkg)
		}
	}
	return m, nil
}

var settingLine = regexp.MustCompile(`^# (package|run|tags|race|tries|limit|shows): (.+)$`)

func (m *mutant) line(s string) error {
	if head, ok := strings.CutPrefix(s, "# "); ok && len(m.files) == 0 {
		if set := settingLine.FindStringSubmatch(s); set != nil {
			return m.set(set[1], set[2])
		}
		m.breaks = strings.TrimSpace(m.breaks + " " + head)
		return nil
	}
	if name, ok := strings.CutPrefix(s, "+++ b/"); ok {
		m.files = append(m.files, filePatch{name: name})
		return nil
	}
	for _, skip := range []string{"diff ", "index ", "--- a/", `\ `} {
		if strings.HasPrefix(s, skip) {
			return nil
		}
	}
	if len(m.files) == 0 {
		return fmt.Errorf("neither a comment nor a diff: %q", s)
	}
	f := &m.files[len(m.files)-1]
	if strings.HasPrefix(s, "@@ ") {
		f.hunks = append(f.hunks, hunk{})
		return nil
	}
	if len(f.hunks) == 0 {
		return fmt.Errorf("a line of a diff before its @@: %q", s)
	}
	h := &f.hunks[len(f.hunks)-1]
	kind, rest := byte(' '), ""
	if s != "" {
		kind, rest = s[0], s[1:]
	}
	switch kind {
	case ' ':
		h.before += rest + "\n"
		h.after += rest + "\n"
	case '-':
		h.before += rest + "\n"
	case '+':
		h.after += rest + "\n"
	default:
		return fmt.Errorf("no line of a diff: %q", s)
	}
	return nil
}

func (m *mutant) set(key, value string) (err error) {
	if key == "package" {
		m.tests = append(m.tests, target{pkg: value, tries: 1})
		return nil
	}
	if len(m.tests) == 0 {
		return fmt.Errorf("%s comes before the package", key)
	}
	switch t := &m.tests[len(m.tests)-1]; key {
	case "run":
		t.run = value
		_, err = regexp.Compile(value)
	case "tags":
		t.tags = value
	case "race":
		t.race = value == "yes"
	case "tries":
		t.tries, err = strconv.Atoi(value)
	case "limit":
		t.limit = value
	case "shows":
		t.shows, err = regexp.Compile(value)
	}
	return err
}

// apply applies the patch, and returns the content of the changed files by name.
func (m *mutant) apply(root string) (map[string]string, error) {
	out := map[string]string{}
	for _, f := range m.files {
		b, err := os.ReadFile(filepath.Join(root, f.name))
		if err != nil {
			return nil, err
		}
		text := "\n" + string(b)
		for _, h := range f.hunks {
			before := "\n" + h.before
			if n := strings.Count(text, before); n != 1 {
				return nil, fmt.Errorf("%s has %d places for these lines, want 1; adapt the patch:\n%s", f.name, n, h.before)
			}
			text = strings.Replace(text, before, "\n"+h.after, 1)
		}
		out[f.name] = text[1:]
	}
	return out, nil
}
