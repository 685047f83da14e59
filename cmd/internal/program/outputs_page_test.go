package program

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/httpsink"
	"github.com/forebay-log/forebay/internal/units"
	"github.com/forebay-log/forebay/loki"
	"github.com/forebay-log/forebay/netsink"
	"github.com/forebay-log/forebay/otlp"
)

// goDefaults contains the defaults of the library for the options whose default in the program
// differs.
var goDefaults = map[string]string{
	"encode":    "`json`",
	"level":     "level of the logger, `info`",
	"slab-size": "`64KiB`; loki, otlp, http `256KiB`",
	"slabs":     "`8`; forward `64`; loki, otlp, http `16`",
	"when-full": "`block-for=250ms`; with a spool `spill`",
	"retry-age": "`24h`; files, standard streams: no limit",
	"label":     "none; in the program `job:forebay`, if none is given",
	"resource":  "`service.name` is `unknown_service:PROGRAM`; in the program it is `forebay`",
}

// outputsPage generates docs/OUTPUTS.md from the table of options.
func outputsPage() string {
	var sb strings.Builder
	sb.WriteString(`# Options of outputs

This page is for operators and programmers who configure outputs. It lists every option once. A test compares
it with the table in the source code from which the flags, the query parameters of ` + "`--to`" + ` and the keys of
configuration files are made. Keys and query parameters have the same name as the option; *default* is theirs.
*Go* is the same option of the library; ` + "`TLS`" + ` is a field of each driver's Config. The library has the same
default, unless *default in Go* names another one.

| option, key, parameter | flag | Go | default | default in Go | unit | for |
|---|---|---|---|---|---|---|
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
		fmt.Fprintf(&sb, "| `%s` | %s | %s | `%s` | %s | %s | %s |\n", o.Name, flag, goName, initial, goDefaults[o.Name], unit, of)
	}
	sb.WriteString(`
` + "`slabs` is 16 for `file:` and 64 for `loki:`, `otlp:` and `http:`" + ` if neither it nor ` + "`slab-size`" + ` is set. The memory of an
output is the product of both: by default 1 MiB for files, 4 MiB for Loki, OTLP and HTTP, and 512 KiB for others.
In Go, the option ` + "`forebay.Buffer`" + ` sets it: by default 4 MiB for Forward, Loki, OTLP and HTTP, and 512 KiB for others.
Kafka and NATS have further options, which [CONFIG](CONFIG.md) describes.
`)
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

// The memory of each output is the one in docs/OUTPUTS.md.
func TestDefaultMemoryOfOutputs(t *testing.T) {
	log, err := forebay.New(
		forebay.File(filepath.Join(t.TempDir(), "a.log")), netsink.To("tcp://127.0.0.1:1"), fluent.To("127.0.0.1:1", "t"),
		loki.To("http://127.0.0.1:1", loki.Label("app", "x")), otlp.To("http://127.0.0.1:1"), httpsink.To("http://127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	for i, out := range log.Router().Stats().Outputs {
		want := []string{"8 × 64KiB", "8 × 64KiB", "64 × 64KiB", "16 × 256KiB", "16 × 256KiB", "16 × 256KiB"}[i]
		if st := out.Delivery.Slab; fmt.Sprintf("%d × %s", st.SlabCount, units.FlagSize(int64(st.SlabBytes))) != want {
			t.Errorf("%s: %d × %d B in Go, want %s", out.Name, st.SlabCount, st.SlabBytes, want)
		}
	}
	for to, want := range map[string]string{
		"file:" + filepath.Join(t.TempDir(), "a.log"): "16 × 64 KiB", "tcp://127.0.0.1:1": "8 × 64 KiB", "forward://127.0.0.1:1": "8 × 64 KiB",
		"loki://127.0.0.1:1": "64 × 64 KiB", "otlp://127.0.0.1:1": "64 × 64 KiB", "http://127.0.0.1:1": "64 × 64 KiB",
	} {
		target, err := openAs(t, dest.All(), to)
		if err != nil {
			t.Fatal(err)
		}
		spec := dest.NewSpec()
		if o := spec.SlabOptions("x", target, 1<<20); dest.Memory(o) != want {
			t.Errorf("%s: %s in the program, want %s", to, dest.Memory(o), want)
		}
		target.Close()
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
