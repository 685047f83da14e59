package arch

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build/constraint"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A tier is a target of the Makefile that runs tests. The tiers are ordered by their cost.
type tier int

const (
	tierCheck tier = iota
	tierIntegration
	tierAll
	tierManual // no target runs the test
)

var tierNames = []string{"check", "integration", "check-all", "manual"}

func (t tier) String() string { return tierNames[t] }

// A testCommand is a call of go test by the Makefile.
type testCommand struct {
	tier     tier
	dir      string // the folder of its module, relative to the root
	packages []string
	env      []string // the names of variables that the recipe sets
	race     bool
	tags     []string
	run      *regexp.Regexp // nil for all tests
}

// recorder replaces the go command during a run of make. It writes the working directory, the
// arguments and the exported variables to a file.
const recorder = `#!/bin/sh
{ pwd; for a; do printf '%s\n' "$a"; done; echo; export -p; } >"$RECORD/$$"
`

// commands returns the calls of go test of all tiers. It runs make with a go command that only
// records its arguments, because the recipes are complete only when make executes them.
var commands = sync.OnceValues(func() ([]testCommand, error) {
	tmp, err := os.MkdirTemp("", "forebay-arch-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	for _, name := range []string{"go", "gofmt"} {
		if err := os.WriteFile(filepath.Join(tmp, name), []byte(recorder), 0o755); err != nil {
			return nil, err
		}
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		return nil, err
	}
	var all []testCommand
	for t, targets := range [][]string{tierCheck: {"check"}, tierIntegration: {"integration"}, tierAll: {"integration-all", "torture"}} {
		record := filepath.Join(tmp, tier(t).String())
		if err := os.Mkdir(record, 0o700); err != nil {
			return nil, err
		}
		make := exec.Command("make", append([]string{"--no-print-directory", "-C", root, "GO=" + filepath.Join(tmp, "go")}, targets...)...)
		make.Env = append(os.Environ(), "RECORD="+record, "PATH="+tmp+":"+os.Getenv("PATH"), "MAKEFLAGS=", "MFLAGS=", "FOREBAY_TORTURE=")
		if out, err := make.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("make %s: %w\n%s", targets, err, out)
		}
		files, err := filepath.Glob(filepath.Join(record, "*"))
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				return nil, err
			}
			if c, ok := parseCommand(root, string(text)); ok {
				c.tier = tier(t)
				all = append(all, c)
			}
		}
	}
	return all, nil
})

var (
	variable = regexp.MustCompile(`(?m)^export (\w+)=['"]?.`)
	// separate lists the flags of go test whose values are separate arguments.
	separate = []string{"-run", "-tags", "-timeout", "-count", "-p", "-bench", "-benchtime"}
)

// parseCommand parses the output of recorder. It returns false for a command that is not go test.
func parseCommand(root, text string) (c testCommand, ok bool) {
	head, exports, _ := strings.Cut(text, "\n\n")
	args := strings.Split(head, "\n")
	dir := args[0]
	if args = args[1:]; len(args) > 1 && args[0] == "-C" {
		dir = filepath.Join(dir, args[1])
		args = args[2:]
	}
	switch i := slices.Index(args, "--"); {
	case len(args) > 0 && args[0] == "test":
		args = args[1:]
	case slices.Contains(args, "gotestsum") && i >= 0:
		args = args[i+1:]
	default:
		return c, false
	}
	rel, err := filepath.Rel(root, dir)
	if err != nil {
		return c, false
	}
	c.dir = filepath.ToSlash(rel)
	for _, m := range variable.FindAllStringSubmatch(exports, -1) {
		c.env = append(c.env, m[1])
	}
	for len(args) > 0 {
		arg, value := args[0], ""
		if args = args[1:]; slices.Contains(separate, arg) && len(args) > 0 {
			value, args = args[0], args[1:]
		}
		switch {
		case arg == "-race":
			c.race = true
		case arg == "-tags":
			c.tags = strings.Split(value, ",")
		case arg == "-run":
			c.run = regexp.MustCompile(value)
		case strings.HasPrefix(arg, "."):
			c.packages = append(c.packages, arg)
		}
	}
	return c, true
}

// runs reports whether the command runs the test on Linux.
func (c *testCommand) runs(t *testFunc) bool {
	if c.dir != t.module || c.race && t.plain || c.run != nil && !c.run.MatchString(t.name) {
		return false
	}
	for _, names := range t.env {
		if !slices.ContainsFunc(names, func(name string) bool { return slices.Contains(c.env, name) }) {
			return false
		}
	}
	if t.tags != nil && !t.tags.Eval(func(tag string) bool {
		return tag == "linux" || tag == "unix" || tag == "race" && c.race || slices.Contains(c.tags, tag)
	}) {
		return false
	}
	return slices.ContainsFunc(c.packages, func(p string) bool {
		base, all := strings.CutSuffix(p, "...")
		base = filepath.ToSlash(filepath.Join(c.dir, base))
		return t.dir == base || all && (base == "." || strings.HasPrefix(t.dir, base+"/"))
	})
}

// A testFunc is a function that go test runs.
type testFunc struct {
	module, dir, name string
	path              string
	tags              constraint.Expr // nil for none
	plain             bool            // it tests more if the race detector is off
	budget            bool            // FOREBAY_TORTURE changes its number of cases
	// env lists alternative variables. The test is skipped unless one variable of each list is set.
	env [][]string
}

// traits are the properties of all functions that have the same name in the test files of a folder.
// They do not include the properties of the functions that these call.
type traits struct {
	plain, budget bool
	env           [][]string
	calls         map[string]bool
}

// testFuncs returns all tests and fuzz targets, also of nested modules.
var testFuncs = sync.OnceValues(func() ([]testFunc, error) {
	const root = "../.."
	var modules []string
	dirs := map[string][]string{} // test files by folder
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(root, filepath.Dir(path))
		rel = filepath.ToSlash(rel)
		if d.Name() == "go.mod" {
			modules = append(modules, rel)
		}
		if strings.HasSuffix(path, "_test.go") {
			dirs[rel] = append(dirs[rel], path)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var all []testFunc
	for dir, files := range dirs {
		module := "."
		for _, m := range modules {
			if (dir == m || strings.HasPrefix(dir, m+"/")) && len(m) > len(module) {
				module = m
			}
		}
		found, err := testsOf(module, dir, files)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
})

var goTest = regexp.MustCompile(`^(Test|Fuzz)([^a-z]|$)`)

// testsOf returns the tests and fuzz targets in the files of a folder.
func testsOf(module, dir string, files []string) ([]testFunc, error) {
	var all []testFunc
	byName := map[string]*traits{}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		f, err := parse(path)
		if err != nil {
			return nil, err
		}
		var tags constraint.Expr
		if line, _, _ := bytes.Cut(text, []byte("\n")); constraint.IsGoBuild(string(line)) {
			if tags, err = constraint.Parse(string(line)); err != nil {
				return nil, err
			}
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			name := fn.Name.Name
			if byName[name] == nil {
				byName[name] = &traits{calls: map[string]bool{}}
			}
			byName[name].inspect(fn.Body)
			if fn.Recv == nil && name != "TestMain" && goTest.MatchString(name) {
				all = append(all, testFunc{module: module, dir: dir, name: name, path: path, tags: tags})
			}
		}
	}
	for i := range all {
		t := &all[i]
		seen := map[string]bool{}
		var visit func(name string)
		visit = func(name string) {
			of := byName[name]
			if of == nil || seen[name] {
				return
			}
			seen[name] = true
			t.plain, t.budget, t.env = t.plain || of.plain, t.budget || of.budget, append(t.env, of.env...)
			for name := range of.calls {
				visit(name)
			}
		}
		visit("TestMain")
		visit(t.name)
	}
	return all, nil
}

// inspect adds the properties of a function. It ignores a variable in the condition of an if
// statement that ends in a return, because such a variable only selects another mode of the
// function.
func (of *traits) inspect(body *ast.BlockStmt) {
	var read []string
	skips := false
	modes := map[ast.Node]bool{}
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt:
			if end := len(n.Body.List); end > 0 {
				if _, ok := n.Body.List[end-1].(*ast.ReturnStmt); ok {
					ast.Inspect(&ast.IfStmt{Init: n.Init, Cond: n.Cond, Body: &ast.BlockStmt{}}, func(n ast.Node) bool {
						modes[n] = true
						return true
					})
				}
			}
		case *ast.Ident:
			of.calls[n.Name] = true
		case *ast.CallExpr:
			sel, ok := n.Fun.(*ast.SelectorExpr)
			if !ok {
				break
			}
			pkg, _ := sel.X.(*ast.Ident)
			switch {
			case pkg != nil && pkg.Name == "os" && sel.Sel.Name == "Getenv" && !modes[n]:
				if lit, ok := n.Args[0].(*ast.BasicLit); ok {
					read = append(read, strings.Trim(lit.Value, `"`))
				}
			case pkg != nil && pkg.Name == "testkit":
				of.budget = of.budget || slices.Contains([]string{"Rounds", "Scale", "Share", "Walks"}, sel.Sel.Name)
			case pkg != nil && pkg.Name == "race" && sel.Sel.Name == "Skip":
				of.plain = true
			case strings.HasPrefix(sel.Sel.Name, "Skip"):
				skips = true
			}
		case *ast.SelectorExpr:
			pkg, ok := n.X.(*ast.Ident)
			of.plain = of.plain || ok && pkg.Name == "race" && n.Sel.Name == "Enabled"
		}
		return true
	})
	if skips && len(read) > 0 {
		of.env = append(of.env, read)
	}
}

// mustCommands returns the commands and the tests.
func mustCommands(t *testing.T) ([]testCommand, []testFunc) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the recipes of the Makefile need a Unix shell")
	}
	all, err := commands()
	if err != nil {
		t.Fatal(err)
	}
	funcs, err := testFuncs()
	if err != nil {
		t.Fatal(err)
	}
	return all, funcs
}

// tierOf returns the cheapest tier with a command that runs the test.
func tierOf(all []testCommand, f *testFunc) tier {
	cheapest := tierManual
	for i := range all {
		if all[i].tier < cheapest && all[i].runs(f) {
			cheapest = all[i].tier
		}
	}
	return cheapest
}

// unset lists environment variables that no target of the Makefile sets. Such a variable names a
// program that a contributor has installed, or selects the child process of another test.
var unset = []string{"FLUENTD", "FLUENTBIT", "FOREBAY_CRASH"}

// Each test runs in make check, except the tests of integration and those that need a variable.
// Tests that the race detector restricts run in `make plain`. Tests whose number of cases depends
// on FOREBAY_TORTURE run in make torture.
func TestEachTestRuns(t *testing.T) {
	all, funcs := mustCommands(t)
	n, plain, budget := 0, 0, 0
	for i := range funcs {
		f := &funcs[i]
		if f.tags != nil && !f.tags.Eval(func(tag string) bool { return tag == "linux" || tag == "unix" || tag == "forebay_points" }) {
			continue // the test is for another platform
		}
		if n++; f.plain {
			plain++
		}
		switch in := tierOf(all, f); {
		case in == tierManual && (len(f.env) == 0 || !slices.Contains(unset, f.env[0][0])):
			t.Errorf("%s: no target runs %s", f.path, f.name)
		case in > tierCheck && !strings.HasPrefix(f.dir, "integration/") && len(f.env) == 0:
			t.Errorf("%s: make check does not run %s (without the race detector: %v)", f.path, f.name, f.plain)
		}
		if f.budget && len(f.env) == 0 {
			budget++
			if !slices.ContainsFunc(all, func(c testCommand) bool { return slices.Contains(c.env, "FOREBAY_TORTURE") && c.runs(f) }) {
				t.Errorf("%s: make torture does not run %s", f.path, f.name)
			}
		}
	}
	if n < 2000 || plain < 30 || budget < 100 {
		t.Errorf("only %d tests were found, of which %d without the race detector and %d with a budget", n, plain, budget)
	}
}

// Each alternative of a pattern in the Makefile matches a test that a command with this pattern
// runs.
func TestPatternsMatch(t *testing.T) {
	all, funcs := mustCommands(t)
	matched := map[string]bool{} // by the pattern and the alternative
	for _, c := range all {
		if c.run == nil {
			continue
		}
		pattern := c.run.String()
		for word := range strings.SplitSeq(pattern, "|") {
			c.run = regexp.MustCompile(word)
			key := pattern + " " + word
			matched[key] = matched[key] || slices.ContainsFunc(funcs, func(f testFunc) bool { return c.runs(&f) })
		}
	}
	for key, ok := range matched {
		if !ok {
			t.Errorf("no test matches the last word of %s", key)
		}
	}
	if len(matched) < 10 {
		t.Errorf("only %d words were found", len(matched))
	}
}
