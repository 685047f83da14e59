package program

import (
	"os"
	"strings"
	"testing"

	"github.com/forebay-log/forebay/cmd/internal/setting"
)

// The help and docs/OPERATING.md list the options that are part of an output's name.
func TestIdentifyingOptionsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/OPERATING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(doc), "are part of that name:")
	text, _, _ = strings.Cut(text, "may change from run to run")
	_, help, _ := strings.Cut(newPipe(nil, nil).Long, "to the --to with the same")
	for _, o := range setting.Options {
		if o.Identifies && !o.KeyOnly && (!strings.Contains(text, "`"+o.Name+"`") || !strings.Contains(help, o.Name)) {
			t.Errorf("%s is not named", o.Name)
		}
	}
}
