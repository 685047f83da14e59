package arch

import (
	"go/ast"
	docs "go/doc/comment"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// codeOf returns the indented blocks of a doc comment that are Go code. An ellipsis in a block
// stands for omitted code.
func codeOf(doc string) (blocks []*ast.File) {
	var p docs.Parser
	for _, b := range p.Parse(doc).Content {
		code, ok := b.(*docs.Code)
		if !ok || !strings.ContainsAny(code.Text, "(") {
			continue
		}
		text := strings.ReplaceAll(code.Text, "…", "")
		f, err := parser.ParseFile(token.NewFileSet(), "", "package p\nfunc _() {\n"+text+"\n}\n", parser.SkipObjectResolution)
		if err != nil {
			f, err = parser.ParseFile(token.NewFileSet(), "", "package p\n"+text, parser.SkipObjectResolution)
		}
		if err == nil {
			blocks = append(blocks, f)
		}
	}
	return blocks
}

// In the code of doc comments, every name that is qualified with a package of forebay exists.
func TestGoDocNamesWhatExists(t *testing.T) {
	const root = "../.."
	names := map[string]map[string]bool{} // maps the name of a package to the names in it
	dirs := map[string]string{}
	for pkg := range mustDependencies(t) {
		dir := filepath.Join(root, strings.TrimPrefix(pkg, module))
		if strings.Contains(pkg, "/internal/") || strings.Contains(pkg, "/cmd/") {
			continue
		}
		names[path.Base(pkg)] = map[string]bool{}
		exported(t, dir, names[path.Base(pkg)])
		dirs[pkg] = dir
	}
	found := 0
	for pkg, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			f, err := parse(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, group := range f.Comments {
				for _, code := range codeOf(group.Text()) {
					ast.Inspect(code, func(n ast.Node) bool {
						sel, ok := n.(*ast.SelectorExpr)
						if !ok {
							return true
						}
						if x, ok := sel.X.(*ast.Ident); ok && names[x.Name] != nil && sel.Sel.IsExported() {
							if found++; !names[x.Name][sel.Sel.Name] {
								t.Errorf("%s: %s: there is no %s.%s", pkg, filepath.Base(file), x.Name, sel.Sel.Name)
							}
						}
						return true
					})
				}
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d names were found", found)
	}
}
