package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	fileSet = token.NewFileSet()
	parsed  = map[string]*ast.File{}
)

// parse returns a parsed Go file with its comments. Each file is parsed once.
func parse(path string) (*ast.File, error) {
	if f := parsed[path]; f != nil {
		return f, nil
	}
	f, err := parser.ParseFile(fileSet, path, nil, parser.ParseComments|parser.SkipObjectResolution)
	parsed[path] = f
	return f, err
}

// sources returns the parsed files of the library and the program. Tests and nested modules are
// omitted.
func sources(t *testing.T) map[string]*ast.File {
	t.Helper()
	files := map[string]*ast.File{}
	root := "../.."
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))
		if d.IsDir() {
			_, apart := os.Stat(filepath.Join(path, "go.mod"))
			if path != root && (apart == nil && name != "cmd" || strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		files[name], err = parse(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 100 {
		t.Fatalf("only %d files found", len(files))
	}
	return files
}

// No package of forebay logs with package log or slog, because such a record could return to the
// failing destination. Packages report to callbacks and standard error.
func TestNoPackageCallsLogOrSlog(t *testing.T) {
	global := []string{"Default", "SetDefault", "Debug", "DebugContext", "Info", "InfoContext", "Warn", "WarnContext",
		"Error", "ErrorContext", "Log", "LogAttrs", "With"}
	files := sources(t)
	for name, f := range files {
		for _, imp := range f.Imports {
			if path, _ := strconv.Unquote(imp.Path.Value); path == "log" {
				t.Errorf("%s imports log", name)
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "slog" && slices.Contains(global, sel.Sel.Name) {
				t.Errorf("%s uses slog.%s", fileSet.Position(n.Pos()), sel.Sel.Name)
			}
			return true
		})
	}
}
