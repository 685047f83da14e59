package arch

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// printing lists the functions whose literal arguments become messages on standard error, or parts
// of such messages.
var printing = map[string]bool{
	"say": true, "Say": true, "Is": true, "Errorf": true, "New": true, "Faultf": true, "wrong": true, // functions of the program, and functions that make errors
	"refuse": true, "Refuse": true, "refusal": true, "fault": true, "bad": true, "malformed": true, // functions of listeners
	"skipPath": true, "Sprintf": true, "Fprintf": true, "append": true, "Join": true,
}

// messageSources lists the directories and files with messages for operators. A name that ends in a
// slash includes subdirectories.
var messageSources = []string{
	"cmd/internal/", "cmd/forebay-all/internal/", "file/", "spool/", "internal/diskqueue/errors.go",
	"fluent/conn.go", "fluent/dial.go", "fluent/handshake.go", "netsink/session.go", "internal/slablog/crashwriter.go",
}

// selfExplaining lists prefixes of source paths. Their messages need no row in the documentation,
// because they contain their remedy.
var selfExplaining = []string{
	"cmd/internal/tool/measure.go", "cmd/internal/tool/size.go", "file/options.go", "cmd/internal/listen/listentest/", "cmd/forebay-all/internal/sinktest/",
}

// notPrinted lists texts of errors that are never printed.
var notPrinted = []string{
	"tail: another content", "tail: another file", "tail: stopped", "journal: stopped", "remote error", "forebay: validated rules are invalid",
	"state: append without a save", "tail: a generation that is",
}

var verb = regexp.MustCompile(`%[-+# 0-9.*\[\]]*[a-zA-Z%]|\n`)

// fragment returns the longest part of a format string between its verbs, or "" if it is too short
// for a search.
func fragment(format string) (longest string) {
	for _, part := range verb.Split(format, -1) {
		if part = strings.Trim(part, " :;,.()\""); len(part) > len(longest) {
			longest = part
		}
	}
	for _, pkg := range []string{"file: ", "fluent: ", "netsink: ", "slab: "} {
		longest = strings.TrimPrefix(longest, pkg) // the program removes this prefix
	}
	if len(longest) < 10 || !strings.Contains(longest, " ") {
		return ""
	}
	return longest
}

// literal returns the text of a string literal, or the longest literal in a concatenation.
func literal(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, _ := strconv.Unquote(e.Value)
			return text
		}
	case *ast.BinaryExpr:
		x, y := literal(e.X), literal(e.Y)
		if len(fragment(x)) < len(fragment(y)) {
			return y
		}
		return x
	}
	return ""
}

// hasPrefix reports whether path begins with one of the prefixes.
func hasPrefix(path string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(path, p) {
			return true
		}
	}
	return false
}

// messages returns the fragments of the messages in a file, with their line numbers.
func messages(t *testing.T, path string) map[string]int {
	t.Helper()
	f, err := parse(path)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	add := func(exprs []ast.Expr) {
		for _, e := range exprs {
			if text := fragment(literal(e)); text != "" {
				found[text] = fileSet.Position(e.Pos()).Line
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl: // help texts are not messages
			return n.Name.Name != "Usage" && n.Name.Name != "newTail"
		case *ast.AssignStmt:
			add(n.Rhs)
		case *ast.ReturnStmt:
			add(n.Results)
		case *ast.CallExpr:
			name := ""
			switch fun := n.Fun.(type) {
			case *ast.Ident:
				name = fun.Name
			case *ast.SelectorExpr:
				name = fun.Sel.Name
			}
			if printing[name] {
				add(n.Args)
			}
		}
		return true
	})
	return found
}

// flat returns a page or a message in the form in which they are compared: without backquotes, and
// with single spaces.
func flat(text string) string {
	return strings.Join(strings.Fields(strings.NewReplacer("`", "", `\|`, "|").Replace(text)), " ")
}

// The longest part of each message between its variables is in docs/OPERATING.md or docs/CONFIG.md,
// so that an operator can search for it.
func TestMessagesAreExplained(t *testing.T) {
	const root = "../.."
	var pages string
	for _, name := range []string{"OPERATING.md", "CONFIG.md"} {
		text, err := os.ReadFile(filepath.Join(root, "docs", name))
		if err != nil {
			t.Fatal(err)
		}
		pages += flat(string(text)) + "\n"
	}
	for _, text := range notPrinted {
		pages += text + "\n"
	}
	found := 0
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		name = filepath.ToSlash(name)
		if d.IsDir() {
			if name != "." && !hasPrefix(name+"/", messageSources) && !strings.Contains(strings.Join(messageSources, " "), name+"/") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || !hasPrefix(name, messageSources) || hasPrefix(name, selfExplaining) {
			return nil
		}
		for text, line := range messages(t, path) {
			found++
			if !strings.Contains(pages, flat(text)) {
				t.Errorf("%s:%d: docs/OPERATING.md does not explain %q", name, line, text)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 300 {
		t.Errorf("only %d messages were found", found)
	}
}
