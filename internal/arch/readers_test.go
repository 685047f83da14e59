package arch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every page of docs begins with a sentence that names its readers.
func TestPagesNameTheirReaders(t *testing.T) {
	const root = "../../"
	pages := []string{root + "deploy/README.md"}
	for _, pattern := range []string{"docs/*.md", "docs/format/*.md"} {
		found, err := filepath.Glob(root + pattern)
		if err != nil || len(found) < 5 {
			t.Fatalf("%s: %d pages, %v", pattern, len(found), err)
		}
		pages = append(pages, found...)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		_, body, _ := strings.Cut(string(text), "\n\n")
		if !strings.HasPrefix(body, "This page is for ") {
			t.Errorf("%s does not begin with its readers: This page is for …", page)
		}
	}
}
