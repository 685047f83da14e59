package arch

import (
	"go/ast"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// generators are the functions of math/rand that need no seed, or take it as an argument.
var generators = []string{"New", "NewPCG", "NewSource", "NewChaCha8", "NewZipf"}

// Random tests are repeatable: they do not use the random source of the process, and no seed is the
// time or the number of the process.
func TestRandomTestsHaveSeeds(t *testing.T) {
	funcs, err := testFuncs()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	seen := map[string]bool{}
	for i := range funcs {
		path := funcs[i].path
		if seen[path] {
			continue
		}
		seen[path] = true
		f, err := parse(path)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(f.Imports, func(s *ast.ImportSpec) bool {
			return s.Name == nil && strings.HasPrefix(s.Path.Value, `"math/rand`)
		}) {
			continue
		}
		n++
		ast.Inspect(f, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := sel.X.(*ast.Ident); !ok || pkg.Name != "rand" {
				return true
			}
			at := fileSet.Position(call.Pos())
			if !slices.Contains(generators, sel.Sel.Name) {
				t.Errorf("%s:%d: rand.%s has no seed; use testkit.Rand(testkit.Seed(t))", filepath.ToSlash(path), at.Line, sel.Sel.Name)
			}
			for _, arg := range call.Args {
				ast.Inspect(arg, func(node ast.Node) bool {
					if sel, ok := node.(*ast.SelectorExpr); ok && slices.Contains([]string{"Getpid", "UnixNano", "Now"}, sel.Sel.Name) {
						t.Errorf("%s:%d: the seed changes with each run; use testkit.Seed", filepath.ToSlash(path), at.Line)
					}
					return true
				})
			}
			return true
		})
	}
	if n < 30 {
		t.Errorf("only %d files use math/rand", n)
	}
}
