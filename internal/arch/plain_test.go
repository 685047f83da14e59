package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// plainRun matches a line of the target plain in the Makefile, with its pattern and its
	// packages.
	plainRun = regexp.MustCompile(`(?m)^\t\$\(GOTEST\).* -run '([^']+)' (.+)$`)
	// skipsRace matches a test that does not run with the race detector.
	skipsRace = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\) \{\n\trace\.Skip\(t\)$`)
	testFunc  = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	// words matches the alternatives of a pattern such as ^Test(Explore|Herd).
	words = regexp.MustCompile(`\w+`)
)

// A test that is skipped with the race detector, or needs test points, runs only in `make plain`.
// The patterns there must match its name, because otherwise it runs nowhere.
func TestPlainRunsTestsThatCheckSkips(t *testing.T) {
	const root = "../.."
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	_, recipe, _ := strings.Cut(string(text), "\nplain:")
	recipe, _, _ = strings.Cut(recipe, "\n\n")
	patterns := map[string][]*regexp.Regexp{} // patterns of the tests that make plain runs, by folder
	all := tests(t)
	for _, m := range plainRun.FindAllStringSubmatch(recipe, -1) {
		dirs := strings.Fields(m[2])
		for _, dir := range dirs {
			dir = filepath.ToSlash(filepath.Clean(dir))
			patterns[dir] = append(patterns[dir], regexp.MustCompile(m[1]))
		}
		for _, word := range words.FindAllString(m[1], -1) {
			found := false
			for name := range all {
				dir, name, ok := strings.Cut(name, ": ")
				for _, d := range dirs {
					found = found || ok && dir == filepath.ToSlash(filepath.Clean(d)) && strings.Contains(name, word)
				}
			}
			if !found {
				t.Errorf("make plain: no test of %s matches %s", m[2], word)
			}
		}
	}
	runs := func(dir, name string) bool {
		for _, p := range patterns[dir] {
			if p.MatchString(name) {
				return true
			}
		}
		return false
	}
	n := 0
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dir, _ := filepath.Rel(root, filepath.Dir(path))
		found := skipsRace.FindAllStringSubmatch(string(text), -1)
		if strings.HasPrefix(string(text), "//go:build forebay_points") {
			found = testFunc.FindAllStringSubmatch(string(text), -1)
		}
		for _, m := range found {
			if n++; !runs(filepath.ToSlash(dir), m[1]) {
				t.Errorf("%s: make plain does not run %s", path, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 10 {
		t.Errorf("only %d tests found", n)
	}
}
