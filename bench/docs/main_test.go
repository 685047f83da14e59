package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The table and the chart in the repository equal the result of generating them from the stored
// results.
func TestDocsAreCurrent(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	page, chart := filepath.Join(dir, "README.md"), filepath.Join(dir, "bench.svg")
	if err := os.WriteFile(page, readme, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run("../results/latest.json", page, chart); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{page: "../../README.md", chart: "../../docs/img/bench.svg"} {
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		stored, err := os.ReadFile(want)
		if err != nil || string(got) != string(stored) {
			t.Errorf("%s is not what make docs writes: run it (%v)", want, err)
		}
	}
}

func TestMissingResultsAreReported(t *testing.T) {
	dir := t.TempDir()
	page, results := filepath.Join(dir, "README.md"), filepath.Join(dir, "latest.json")
	for _, tt := range []struct{ page, results, want string }{
		{"no marks", "{}", "row json/two has no figures"},
		{"no marks", "{", "unexpected end of JSON"},
		{"no marks", `{"rows":[{"name":"json/two"}]}`, "row json/two has no figures"},
	} {
		for path, text := range map[string]string{page: tt.page, results: tt.results} {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := run(results, page, filepath.Join(dir, "x.svg")); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want %q", err, tt.want)
		}
	}
	if err := run("../results/latest.json", page, filepath.Join(dir, "x.svg")); err == nil || !strings.Contains(err.Error(), "no place for the table") {
		t.Errorf("%v", err)
	}
}
