package program

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/forebay-log/forebay/cmd/internal/setting"
)

// outputsPage generates docs/OUTPUTS.md from the table of options.
func outputsPage() string {
	var sb strings.Builder
	sb.WriteString(`# Options of outputs

This page is for operators and programmers who configure outputs. It lists every option once. A test compares
it with the table in the source code from which the flags, the query parameters of ` + "`--to`" + ` and the keys of
configuration files are made. Keys and query parameters have the same name as the option. *Go* is the same
option of the library; ` + "`TLS`" + ` is a field of each driver's Config.

| option, key, parameter | flag | Go | default | unit | for |
|---|---|---|---|---|---|
`)
	for _, o := range setting.Options {
		flag, goName, initial := "`--"+o.Name+"`", "", o.Initial().String()
		if o.KeyOnly {
			flag = "-"
		}
		for _, name := range strings.Split(o.Go, ", ") {
			if name != "" {
				goName += ", `" + name + "`"
			}
		}
		if goName = strings.TrimPrefix(goName, ", "); goName == "" {
			goName = "-"
		}
		if initial == "" {
			initial = "none"
		}
		unit, of := "text", "all"
		switch v := o.Initial().(type) {
		case *setting.Size:
			unit = "bytes"
		case *setting.Duration:
			unit = "duration"
		case *setting.Count:
			unit = "number"
		case *setting.Toggle:
			unit = "switch"
		case *setting.Choice:
			unit = strings.Join(v.Of, ", ")
		case *setting.List:
			unit = "text, repeatable"
		case *setting.Level:
			unit = "level"
		case *setting.Path:
			unit = "path"
		}
		if o.Name == "when-full" {
			unit = "policy"
		}
		if o.Of != nil {
			of = strings.Join(slices.Compact(slices.Sorted(slices.Values(o.Of))), ", ")
		}
		fmt.Fprintf(&sb, "| `%s` | %s | %s | `%s` | %s | %s |\n", o.Name, flag, goName, initial, unit, of)
	}
	sb.WriteString("\n`slabs` is 16 for `file:` and 64 for `loki:` if neither it nor `slab-size` is set. Kafka and NATS have further\noptions, which [CONFIG](CONFIG.md) describes.\n")
	return sb.String()
}

// docs/OUTPUTS.md is identical to the generated page.
func TestOutputsPageIsGenerated(t *testing.T) {
	const path = "../../../docs/OUTPUTS.md"
	want := outputsPage()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s is not current; go -C cmd test ./internal/program -run TestOutputsPageIsGenerated -update writes it (%v)", path, err)
	}
}

// Each name in the field Option.Go is the name of a field or function in the library.
func TestGoNamesOfOptions(t *testing.T) {
	source := map[string]string{}
	for _, dir := range []string{"forebay", "file", "deliver", "slab", "spool", "fluent", "loki", "otlp", "httpsink", "httpclient", "netsink"} {
		path := "../../../" + dir
		if dir == "forebay" {
			path = "../../.."
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), ".go") && !strings.HasSuffix(e.Name(), "_test.go") {
				text, err := os.ReadFile(path + "/" + e.Name())
				if err != nil {
					t.Fatal(err)
				}
				source[dir] += string(text)
			}
		}
	}
	for _, o := range setting.Options {
		for _, name := range strings.Split(o.Go, ", ") {
			parts := strings.Split(name, ".")
			if name == "" || parts[0] == "TLS" {
				continue
			}
			last := parts[len(parts)-1]
			if text := source[parts[0]]; !strings.Contains(text, "\t"+last+" ") && !strings.Contains(text, "\t"+last+",") && !strings.Contains(text, ", "+last+",") &&
				!strings.Contains(text, ", "+last+" ") && !strings.Contains(text, "func "+last+"(") {
				t.Errorf("%s: there is no %s", o.Name, name)
			}
		}
	}
}
