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

// sources returns the parsed files of the library and the program, without tests and
// the modules apart.
func sources(t *testing.T, mode parser.Mode) (*token.FileSet, map[string]*ast.File) {
	t.Helper()
	set, files := token.NewFileSet(), map[string]*ast.File{}
	root := "../.."
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))
		if d.IsDir() {
			_, apart := os.Stat(filepath.Join(path, "go.mod"))
			if path != root && (apart == nil || strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		files[name], err = parser.ParseFile(set, path, nil, mode)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 100 {
		t.Fatalf("only %d files found", len(files))
	}
	return set, files
}

// What forebay has to say itself goes to callbacks and to standard error, never through
// log or slog: it would come back in front of the destination it is about.
func TestNothingLogs(t *testing.T) {
	global := []string{"Default", "SetDefault", "Debug", "DebugContext", "Info", "InfoContext", "Warn", "WarnContext",
		"Error", "ErrorContext", "Log", "LogAttrs", "With"}
	set, files := sources(t, parser.SkipObjectResolution)
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
				t.Errorf("%s uses slog.%s", set.Position(n.Pos()), sel.Sel.Name)
			}
			return true
		})
	}
}
