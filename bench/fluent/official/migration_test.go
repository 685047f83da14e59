package official

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/fluent/fluent-logger-golang/fluent"
)

// The migration page has a row for each option of fluent-logger-golang.
func TestMigrationPageNamesEveryOption(t *testing.T) {
	page, err := os.ReadFile("../../../docs/MIGRATING-fluent-logger-golang.md")
	if err != nil {
		t.Fatal(err)
	}
	_, options, _ := strings.Cut(string(page), "## Options")
	for f := range reflect.TypeFor[fluent.Config]().Fields() {
		if !strings.Contains(options, "`"+f.Name+"`") && !strings.Contains(options, "`"+f.Name+": ") {
			t.Errorf("%s has no row", f.Name)
		}
	}
}
