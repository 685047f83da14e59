package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// docs/adr contains at most 25 pages. Its index lists all of them. Every reference to a decision
// has the number of an existing page.
func TestReferencesToDecisionsExist(t *testing.T) {
	const root, most = "../..", 25
	files, err := filepath.Glob(filepath.Join(root, "docs/adr/[0-9]*.md"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) > most {
		t.Errorf("%d pages: merge some, want at most %d", len(files), most)
	}
	index, err := os.ReadFile(filepath.Join(root, "docs/adr/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]bool{}
	for _, file := range files {
		number, _, _ := strings.Cut(filepath.Base(file), "-")
		number = strings.TrimLeft(number, "0")
		pages[number] = true
		text, err := os.ReadFile(file)
		if err != nil || !strings.HasPrefix(string(text), "# "+number+". ") {
			t.Errorf("%s: the title does not begin with its number (%v)", file, err)
		}
		if !strings.Contains(string(index), "]("+filepath.Base(file)+")") {
			t.Errorf("docs/adr/README.md does not list %s", file)
		}
	}
	reference := regexp.MustCompile(`\bADRs? ([0-9]+)|\bdocs/adr/0*([0-9]+)`)
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata") {
			if err == nil {
				err = filepath.SkipDir
			}
			return err
		}
		if ext := filepath.Ext(path); ext != ".md" && ext != ".go" || filepath.Join(root, "docs/adr/README.md") == path {
			return nil
		}
		text, err := os.ReadFile(path)
		for line := range strings.Lines(string(text)) {
			if !strings.Contains(line, "ADR") && !strings.Contains(line, "docs/adr/") {
				continue // other lines are skipped, because the regular expression is slow
			}
			for _, m := range reference.FindAllStringSubmatch(line, -1) {
				if n := m[1] + m[2]; !pages[n] {
					t.Errorf("%s: there is no ADR %s", path, n)
				}
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
