package loki

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// encoderFiles are the files of the encoder, and clientFiles those of the client. Both use
// commonFiles. joiningFiles use all others.
var (
	encoderFiles = []string{"encoder.go", "scope.go", "pick.go", "evaluate.go", "body.go", "logfmt.go", "codec.go", "labelvalues.go"}
	clientFiles  = []string{"send.go", "flow.go", "request.go", "rewrite.go", "reply.go", "refusal.go", "pace.go", "client.go", "push.go", "moves.go", "exchange.go", "http.go"}
	joiningFiles = []string{"driver.go", "to.go", "doc.go"}
	commonFiles  = []string{"config.go", "label.go", "usedtimes.go", "reason.go", "stream.go", "tenant.go", "trust.go", "wire.go"}
)

// The files of the encoder and of the client do not use each other. The common files use neither.
func TestEncoderAndClientAreIndependent(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]string{} // part of each file, by name
	for part, files := range map[string][]string{"encoder": encoderFiles, "client": clientFiles, "joining": joiningFiles, "common": commonFiles} {
		for _, f := range files {
			of[f] = part
		}
	}
	declared := map[string]string{} // part of the declaring file, by declared name
	parsed := map[string]*ast.File{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		if of[name] == "" {
			t.Errorf("%s is in no list of files", name)
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		parsed[name] = f
		for n := range f.Scope.Objects {
			declared[n] = of[name]
		}
	}
	for name, f := range parsed {
		part := of[name]
		if part == "joining" {
			continue
		}
		for _, id := range f.Unresolved {
			if other := declared[id.Name]; other != "" && other != part && other != "common" {
				t.Errorf("%s (%s) uses %s (%s)", name, part, id.Name, other)
			}
		}
		for _, d := range f.Decls { // a method belongs to the part of its type
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
				recv := fn.Recv.List[0].Type
				if p, ok := recv.(*ast.StarExpr); ok {
					recv = p.X
				}
				if id, ok := recv.(*ast.Ident); ok && declared[id.Name] != part {
					t.Errorf("%s (%s) has a method of %s (%s)", name, part, id.Name, declared[id.Name])
				}
			}
		}
	}
}
