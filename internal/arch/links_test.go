package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile("(?m)^#+ (.+)$")
	comment = regexp.MustCompile(`docs/[\w/-]+\.md\b`)
)

// unfenced returns a page without its fenced blocks of code.
func unfenced(page string) string {
	var text strings.Builder
	inside := false
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "```") {
			inside = !inside
		} else if !inside {
			text.WriteString(line)
		}
	}
	return text.String()
}

// anchors returns the anchors that GitHub creates from the headings of a page.
func anchors(page string) map[string]bool {
	names := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(unfenced(page), -1) {
		name := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(m[1]), "")
		names[strings.ReplaceAll(name, " ", "-")] = true
	}
	return names
}

// The targets of links between pages exist. The pages that comments mention exist as well.
func TestLinksLeadSomewhere(t *testing.T) {
	const root = "../.."
	found := 0
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && (name == ".git" || name == "node_modules" || name == "testdata") {
			return filepath.SkipDir
		}
		if ext := filepath.Ext(path); ext != ".md" && ext != ".go" {
			return nil
		}
		text, err := os.ReadFile(path)
		if filepath.Ext(path) == ".go" {
			for _, page := range comment.FindAllString(string(text), -1) {
				if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(page))); err != nil {
					t.Errorf("%s: there is no %s", path, page)
				}
			}
			return err
		}
		for _, m := range link.FindAllStringSubmatch(unfenced(string(text)), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, ":") { // not a file, but a URL
				continue
			}
			found++
			to := path
			if target != "" {
				to = filepath.Join(filepath.Dir(path), filepath.FromSlash(target))
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: there is no %s", path, m[1])
			} else if anchor != "" {
				page, err := os.ReadFile(to)
				if err != nil || !anchors(string(page))[anchor] {
					t.Errorf("%s: no heading for %s", path, m[1])
				}
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 10 {
		t.Errorf("only %d links were found", found)
	}
}
