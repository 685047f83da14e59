package official

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/fluent/fluent-logger-golang/fluent"
)

// The page for people who come from there has a word on every option.
func TestMigrationPageNamesEveryOption(t *testing.T) {
	page, err := os.ReadFile("../../../docs/MIGRATING-fluent-logger-golang.md")
	if err != nil {
		t.Fatal(err)
	}
	_, options, _ := strings.Cut(string(page), "## Option by option")
	for f := range reflect.TypeFor[fluent.Config]().Fields() {
		if !strings.Contains(options, "`"+f.Name+"`") && !strings.Contains(options, "`"+f.Name+": ") {
			t.Errorf("%s is not there", f.Name)
		}
	}
}
