package arch

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pages lists the pages in which every file and method, written as `file.go` or `file.go:
// (*Type).method → other`, must exist.
var pages = []string{"ARCHITECTURE.md", "docs/PACKAGES.md", "README.md", "CONTRIBUTING.md", "docs/OPERATING.md", "docs/CRASH-SAFETY.md", "docs/EXITS.md", "docs/SOURCES.md", "docs/FLEET.md"}

var (
	codeSpan = regexp.MustCompile("`([^`\n]+)`")
	fileName = regexp.MustCompile(`^([a-z0-9_/]+\.go)(?:: (.+))?$`)
	testName = regexp.MustCompile(`^((?:[a-z][a-z/]*: )?(?:Test|Fuzz|Benchmark|Example)[A-Z_]\w*)(?:/[\w./]+)?$`)
)

// declared returns the names of the functions in a file. A method m of *T is returned as (*T).m,
// T.m and m.
func declared(t *testing.T, path string) []string {
	t.Helper()
	f, err := parse(path)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		names = append(names, fn.Name.Name)
		if fn.Recv == nil {
			continue
		}
		recv := fn.Recv.List[0].Type
		star, isPtr := recv.(*ast.StarExpr)
		if isPtr {
			recv = star.X
		}
		if ix, ok := recv.(*ast.IndexExpr); ok {
			recv = ix.X
		}
		if id, ok := recv.(*ast.Ident); ok {
			name := id.Name + "." + fn.Name.Name
			if isPtr {
				name = "(*" + id.Name + ")." + fn.Name.Name
			}
			names = append(names, name)
		}
	}
	return names
}

// tests returns the names of all tests, including those of nested modules: each as `name` and as
// `folder: name`. The folder of the root is ".".
func tests(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, "_test.go") {
			dir, _ := filepath.Rel("../..", filepath.Dir(path))
			for _, name := range declared(t, path) {
				names[name], names[filepath.ToSlash(dir)+": "+name] = true, true
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestPagesNameWhatExists(t *testing.T) {
	const root = "../.."
	tests := tests(t)
	pairs := 0
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, span := range codeSpan.FindAllStringSubmatch(string(text), -1) {
			if m := testName.FindStringSubmatch(span[1]); m != nil && !tests[m[1]] {
				t.Errorf("%s: there is no %s", page, m[1])
			}
			m := fileName.FindStringSubmatch(span[1])
			if m == nil {
				continue
			}
			path := filepath.Join(root, filepath.FromSlash(m[1]))
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: there is no %s", page, m[1])
				continue
			}
			if m[2] == "" {
				continue
			}
			names := declared(t, path)
			for _, name := range regexp.MustCompile(` → |, `).Split(m[2], -1) {
				pairs++
				if !slices.Contains(names, name) {
					t.Errorf("%s: %s has no function %s", page, m[1], name)
				}
			}
		}
	}
	if pairs < 5 {
		t.Errorf("only %d functions are named", pairs)
	}
}

// The README contains the Go code of a testable example, so its code compiles and works.
func TestReadmeIsAnExample(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("../../example_readme_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(readme), "```go\n")
	block, _, _ = strings.Cut(block, "```")
	if !ok || strings.Count(block, "\n") != 10 {
		t.Errorf("not ten lines of Go:\n%s", block)
	}
	for line := range strings.Lines(block) {
		if !strings.Contains(string(example), "\t"+line) {
			t.Errorf("not in the example: %s", line)
		}
	}
}

// The table of packages in docs/PACKAGES.md lists every package.
func TestPackagesAreListed(t *testing.T) {
	text, err := os.ReadFile("../../docs/PACKAGES.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## Packages\n")
	table, _, _ = strings.Cut(table, "\n## ")
	named := map[string]bool{}
	for _, span := range codeSpan.FindAllStringSubmatch(table, -1) {
		named[span[1]] = true
	}
	for pkg := range mustDependencies(t) {
		name := strings.TrimPrefix(strings.TrimPrefix(pkg, module), "/")
		if name == "" {
			name = "."
		}
		if short := name[strings.LastIndex(name, "/internal/")+1:]; !named[name] && !named[strings.TrimPrefix(short, "internal/")] {
			t.Errorf("docs/PACKAGES.md does not list the package %s", name)
		}
	}
}

// The table of goroutines in docs/PACKAGES.md lists every file that starts one.
func TestGoroutinesAreListed(t *testing.T) {
	const root = "../.."
	text, err := os.ReadFile(filepath.Join(root, "docs/PACKAGES.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## Goroutines\n")
	table, _, _ = strings.Cut(table, "\n## ")
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		name = filepath.ToSlash(name)
		if d.IsDir() {
			switch name {
			case "bench", "integration", "tools", "examples", "internal/testkit", "internal/test", ".git":
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		f, err := parse(path)
		if err != nil {
			return err
		}
		starts := false
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				starts = true
			case *ast.CallExpr: // a call of sync.WaitGroup.Go
				sel, ok := n.Fun.(*ast.SelectorExpr)
				starts = starts || ok && sel.Sel.Name == "Go"
			}
			return !starts
		})
		if starts && !strings.Contains(table, "`"+name+"`") {
			t.Errorf("%s starts a goroutine that docs/PACKAGES.md does not list", name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
