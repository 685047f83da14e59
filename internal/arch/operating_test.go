package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/forebay-log/forebay/batch"
)

// rows returns the word or number in the first column of the first table in a section. Words are in
// backquotes.
func rows(t *testing.T, page, section string) (words []string) {
	t.Helper()
	_, text, ok := strings.Cut(page, "\n## "+section+"\n")
	if !ok {
		t.Fatalf("no section %s", section)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	for _, m := range regexp.MustCompile("(?m)^\\| `?([a-z0-9-]+)`? \\|").FindAllStringSubmatch(text, -1) {
		words = append(words, m[1])
	}
	slices.Sort(words)
	return slices.Compact(words)
}

// docs/OPERATING.md lists exactly the existing drop reasons, events and exit codes.
func TestOperatingIsComplete(t *testing.T) {
	const root = "../.."
	text, err := os.ReadFile(filepath.Join(root, "docs", "OPERATING.md"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{"Exit codes": {"0"}}
	for r := range batch.Reason(len(batch.Drops{})) {
		want["Drop reasons"] = append(want["Drop reasons"], r.String())
	}
	find := map[string][]*regexp.Regexp{ // expressions that begin with literal text are faster
		"Events":     {regexp.MustCompile(`Op: "([a-z-]+)"`), regexp.MustCompile(`ost\("([a-z-]+)"`), regexp.MustCompile(`fail\(err, t, "([a-z-]+)"`)},
		"Exit codes": {regexp.MustCompile(`Code += ([0-9]+)`)},
	}
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		other := strings.HasPrefix(name, "internal/") && !slices.Contains([]string{"internal/callback", "internal/diskqueue", "internal/slablog"}, name) // packages that report no events of outputs
		if d.IsDir() && (other || slices.Contains([]string{"bench", "integration", "tools", ".git"}, name)) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		src, err := os.ReadFile(path)
		for section, all := range find {
			for _, re := range all {
				for _, m := range re.FindAllSubmatch(src, -1) {
					want[section] = append(want[section], string(m[1]))
				}
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	event, err := os.ReadFile(filepath.Join(root, "batch", "event.go"))
	if err != nil {
		t.Fatal(err)
	}
	_, ops, _ := strings.Cut(string(event), "// Op names")
	ops, _, _ = strings.Cut(ops, "Op string")
	for section, want := range want {
		slices.Sort(want)
		want = slices.Compact(want)
		if got := rows(t, string(text), section); !slices.Equal(got, want) {
			t.Errorf("%s has\n%q, want\n%q", section, got, want)
		}
		if len(want) < 5 {
			t.Errorf("%s: only %q were found", section, want)
		}
		for _, op := range want {
			if section == "Events" && !regexp.MustCompile(`\b`+op+`\b`).MatchString(ops) {
				t.Errorf("batch.Event does not name %s", op)
			}
		}
	}
}
