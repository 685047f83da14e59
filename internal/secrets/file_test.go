package secrets

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestReadFileRemovesMarkAndNewlines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	for text, want := range map[string]string{
		"":              "",
		"x":             "x",
		"x\n":           "x",
		" x \r\n\n":     " x ",
		"\ufeffx\r\n":   "x",
		"\ufeff\ufeffx": "\ufeffx",
		"x\ufeff":       "x\ufeff",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadFile(path); got != want || err != nil {
			t.Errorf("%q is read as %q, want %q; %v", text, got, want, err)
		}
	}
	if _, err := ReadFile(path + "x"); !os.IsNotExist(err) {
		t.Error(err)
	}
	for _, text := range []string{"two\nlines", "two\nlines\n", "two\rlines", "# comment\r\nsecret\r\n", "\nsecret"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadFile(path); got != "" || !errors.Is(err, errSeveralLines) {
			t.Errorf("%q is read as %q; %v", text, got, err)
		}
	}
}
