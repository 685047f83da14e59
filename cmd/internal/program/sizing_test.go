package program

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/forebay-log/forebay/cmd/internal/tool"
)

// Each command in docs/SIZING.md prints the output on the page.
func TestCommandsOfSizingPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/SIZING.md")
	if err != nil {
		t.Fatal(err)
	}
	size := func(args string) string {
		cmd := tool.NewSize()
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetArgs(strings.Fields(args))
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			return "forebay: " + err.Error()
		}
		return out.String()
	}
	rows := 0
	row := regexp.MustCompile("(?m)^.*\\| ([^|]+) \\| `forebay size ([^`]+)` \\|$")
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		rows++
		if out := size(m[2]); !regexp.MustCompile(`(?m)^(plan|given|absorbs) .*\b` + regexp.QuoteMeta(m[1]) + `\b`).MatchString(out) {
			t.Errorf("forebay size %s does not say %q:\n%s", m[2], m[1], out)
		}
	}
	if rows != 19 {
		t.Errorf("%d rows have a command", rows)
	}
	shown := regexp.MustCompile(`(?m)^    \$ forebay size (.*)\n    (.*)$`).FindStringSubmatch(string(page))
	if shown == nil || size(shown[1]) != shown[2] {
		t.Errorf("the example of an error: %q", shown)
	}
}
