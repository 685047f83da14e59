package arch

import (
	"go/ast"
	"go/types"
	"strconv"
	"testing"
)

// Only values.Shape caches information about Go types. In other files that use package reflect, no
// variable or field is a sync.Map or a map with reflect.Type as its key.
func TestOneCacheByType(t *testing.T) {
	const cache = "internal/values/shape.go"
	files := sources(t)
	found := 0
	for name, f := range files {
		uses := false
		for _, imp := range f.Imports {
			path, _ := strconv.Unquote(imp.Path.Value)
			uses = uses || path == "reflect"
		}
		if !uses {
			continue
		}
		check := func(x ast.Expr) {
			text := types.ExprString(x)
			if m, ok := x.(*ast.MapType); text != "sync.Map" && (!ok || types.ExprString(m.Key) != "reflect.Type") {
				return
			}
			if found++; name != cache {
				t.Errorf("%s keeps a %s; see values.ShapeOf", name, text)
			}
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range g.Specs {
				if v, ok := s.(*ast.ValueSpec); ok && v.Type != nil {
					check(v.Type)
				}
				ast.Inspect(s, func(n ast.Node) bool {
					if st, ok := n.(*ast.StructType); ok {
						for _, field := range st.Fields.List {
							check(field.Type)
						}
					}
					return true
				})
			}
		}
	}
	if found != 1 {
		t.Errorf("%d caches by type, want the one in %s", found, cache)
	}
}
