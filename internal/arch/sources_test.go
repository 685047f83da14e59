package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// docs/SOURCES.md has five columns. The third one contains names of existing tests, as `folder:
// Test`, or as `Test` in the root. Names with a slash in other columns are existing folders and
// files; in the last column they may be rows of bench. Numbers of entries exist in bench/LEDGER.md.
// TestDocsNameWhatExists checks the second column, and TestLinksLeadSomewhere checks the links.
func TestSourcesNameWhatExists(t *testing.T) {
	const root = "../.."
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	tests := tests(t)
	literals := map[string]bool{}
	err := filepath.WalkDir(filepath.Join(root, "bench"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`"([^"\n]+)"`).FindAllSubmatch(text, -1) {
			literals[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	digits := regexp.MustCompile(`\d+`)
	isRow := func(name string) bool { // the source of bench may contain the name of a row as two literals
		for at := range name {
			if literals[name[at:]] && (at == 0 || literals[name[:at]]) {
				return true
			}
		}
		return literals[digits.ReplaceAllString(name, "%d")]
	}
	ledger := read("bench/LEDGER.md")
	var (
		page  = read("docs/SOURCES.md")
		path  = regexp.MustCompile(`^[a-z][\w-]*(?:/[\w.-]+)+$`)
		entry = regexp.MustCompile(`\bentr(?:y|ies) (\d+)(?: and (\d+))?`)
	)
	sections := strings.Split(page, "\n## ")[1:]
	if len(sections) != 5 {
		t.Errorf("%d sources", len(sections))
	}
	for _, section := range sections {
		name, text, _ := strings.Cut(section, "\n")
		shown := 0
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| In the source | ") {
				continue
			}
			cells := strings.Split(strings.Trim(line, "| \n"), " | ")
			if len(cells) != 5 {
				t.Errorf("%s: %d columns: %s", name, len(cells), line)
				continue
			}
			for i, cell := range cells {
				if strings.TrimSpace(cell) == "" {
					t.Errorf("%s: column %d of %q is empty; write —", name, i+1, cells[0])
				}
				for _, span := range codeSpan.FindAllStringSubmatch(cell, -1) {
					switch is := span[1]; {
					case i == 2:
						m := testName.FindStringSubmatch(is)
						if m == nil {
							t.Errorf("%s: %s is not the name of a test", name, is)
							continue
						}
						where := m[1]
						if !strings.Contains(where, ": ") {
							where = ".: " + where
						}
						if shown++; !tests[where] {
							t.Errorf("%s: there is no %s", name, where)
						}
					case path.MatchString(is):
						_, err := os.Stat(filepath.Join(root, filepath.FromSlash(is)))
						if err != nil && (i < 4 || !isRow(is)) {
							t.Errorf("%s: there is no %s", name, is)
						}
					}
				}
			}
			for _, m := range entry.FindAllStringSubmatch(line, -1) {
				for _, n := range m[1:] {
					if n != "" && !strings.Contains(ledger, "\n## "+n+". ") {
						t.Errorf("%s: bench/LEDGER.md has no entry %s", name, n)
					}
				}
			}
		}
		if shown < 5 {
			t.Errorf("%s: only %d tests are named", name, shown)
		}
	}
}
