package arch

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// lines returns the non-empty lines of a text, without surrounding spaces, joined by newlines.
func lines(text string) string {
	var sb strings.Builder
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			sb.WriteString(line + "\n")
		}
	}
	return sb.String()
}

// All lines of Go code in docs are also in a testable example, so they compile.
func TestGoCodeInDocsIsInExamples(t *testing.T) {
	const root = "../.."
	var examples []string
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") || !strings.Contains(d.Name(), "example") {
			return err
		}
		text, err := os.ReadFile(path)
		examples = append(examples, "\n"+lines(string(text)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(root + "/docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
	blocks:
		for _, m := range regexp.MustCompile("(?ms)^```go\n(.*?)^```").FindAllStringSubmatch(string(text), -1) {
			found++
			for _, example := range examples {
				if strings.Contains(example, "\n"+lines(m[1])) {
					continue blocks
				}
			}
			t.Errorf("%s: in no example:\n%s", page, m[1])
		}
	}
	if found == 0 {
		t.Error("no sample was found")
	}
}

// exported adds the exported names of a package to names: types with their fields and methods,
// functions, constants and variables.
func exported(t *testing.T, dir string, names map[string]bool) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parse(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				names[fn.Name.Name] = true
				continue
			}
			ast.Inspect(d, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.TypeSpec:
					names[n.Name.Name] = true
				case *ast.Field:
					for _, id := range n.Names {
						names[id.Name] = true
					}
				case *ast.ValueSpec:
					for _, id := range n.Names {
						names[id.Name] = true
					}
				}
				return true
			})
		}
	}
}

// Every option, field, function, flag and alert of forebay that the docs name exists. The test
// checks the last column of docs/MIGRATING-*.md, the second column of docs/SOURCES.md, and
// docs/OPERATING.md.
func TestDocsNameWhatExists(t *testing.T) {
	const root = "../.."
	names := map[string]bool{}
	for _, dir := range []string{"", "batch", "bufpool", "deliver", "encode", "file", "fluent", "httpsink", "loki", "otlp", "slab", "spool", "transport", "httpclient"} {
		exported(t, filepath.Join(root, dir), names)
	}
	rules, err := os.ReadFile(root + "/deploy/prometheus/forebay.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(string(rules), -1) {
		names[m[1]] = true
	}
	for _, word := range []string{"Content", "Ctrl", "Europe", "For", "Forward", "GiB", "It", "KiB", "Local", "Loki", "MiB", "Only", "PushRequest", "Which"} {
		names[word] = true // words in messages count as names
	}
	var flags strings.Builder
	sources, err := filepath.Glob(root + "/cmd/internal/*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range sources {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		flags.Write(text)
	}
	pages, err := filepath.Glob(root + "/docs/MIGRATING-*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages = append(pages, filepath.Join(root, "docs", "OPERATING.md"), filepath.Join(root, "docs", "SOURCES.md"))
	ident := regexp.MustCompile(`(?:^|[^\w"/.-])((?:[a-z]+\.)?[A-Z][A-Za-z]+(?:\.[A-Z]\w+)*)`)
	text := regexp.MustCompile(`"[^"]*"`)
	found := 0
	for _, page := range pages {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			if !strings.HasPrefix(line, "| ") {
				continue
			}
			cells := strings.Split(strings.TrimSuffix(strings.TrimSpace(line), "|"), " | ")
			switch { // the other columns contain options of other programs
			case strings.Contains(page, "MIGRATING"):
				cells = cells[len(cells)-1:]
			case strings.Contains(page, "SOURCES"):
				cells = cells[1:2]
			}
			for _, span := range codeSpan.FindAllStringSubmatch(strings.Join(cells, " "), -1) {
				code := text.ReplaceAllString(span[1], "")
				if flag, _, _ := strings.Cut(strings.TrimPrefix(code, "--"), " "); strings.HasPrefix(code, "--") {
					found++
					flag = strings.TrimRight(flag, ":,") // punctuation that follows the flag in a message
					if !strings.Contains(flags.String(), `"`+flag+`"`) {
						t.Errorf("%s: forebay has no --%s", page, flag)
					}
					continue
				}
				for _, m := range ident.FindAllStringSubmatch(code, -1) {
					if strings.HasPrefix(m[1], "runtime.") {
						continue
					}
					for _, name := range strings.Split(m[1], ".") {
						if found++; name[0] < 'a' && name != strings.ToUpper(name) && !names[name] {
							t.Errorf("%s: `%s`: there is no %s", page, span[1], name)
						}
					}
				}
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d names were found", found)
	}
}
