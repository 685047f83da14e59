package arch

import (
	"go/ast"
	"regexp"
	"strings"
	"testing"
)

var (
	optionTypes = regexp.MustCompile(`^(\w*Options|\w*Config|Workload|Crash|TLS)$`)
	saysDefault = regexp.MustCompile(`(?i)\bdefaults?\b|\brequired\b`)
)

// The comment of each field of an options struct states its default. Fields without an empty line
// or a comment between them may share one statement.
func TestOptionsStateDefaults(t *testing.T) {
	files := sources(t)
	fields := 0
	for name, f := range files {
		if strings.HasPrefix(name, "internal/") || strings.HasPrefix(name, "cmd/") {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			st, ok := spec.Type.(*ast.StructType)
			if !ok || !spec.Name.IsExported() || !optionTypes.MatchString(spec.Name.Name) {
				return true
			}
			said, end := "", -1
			for _, field := range st.Fields.List {
				from := fileSet.Position(field.Pos()).Line
				switch {
				case field.Doc != nil:
					said = field.Doc.Text()
				case from != end+1:
					said = ""
				}
				end = fileSet.Position(field.End()).Line
				text := said + field.Comment.Text()
				for _, id := range field.Names {
					if !id.IsExported() {
						continue
					}
					if fields++; !saysDefault.MatchString(text) {
						t.Errorf("%s: %s.%s states no default", name, spec.Name.Name, id.Name)
					}
				}
			}
			return true
		})
	}
	if fields < 200 {
		t.Errorf("only %d fields found", fields)
	}
}
