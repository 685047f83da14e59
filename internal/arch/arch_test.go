// Package arch tests the rules of ARCHITECTURE.md: which packages a package may import, which
// modules the core may link, and whether the documentation names existing things.
package arch

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/forebay-log/forebay"

// allowed lists the packages that a package may import, directly or indirectly. A package that is
// not listed may import none, so a new package must be added here.
var allowed = map[string][]string{
	"batch":                {"internal/layout"},
	"bufpool":              {},
	"internal/callback":    {"batch", "internal/layout"},
	"internal/layout":      {},
	"internal/mapped":      {},
	"internal/breaker":     {"internal"},
	"internal/poison":      {"batch", "internal"},
	"internal/crashfile":   {"batch", "internal"},
	"internal/fleet":       {"slab", "batch", "bufpool", "internal"},
	"internal/arch":        {},
	"internal/keyset":      {"internal"},
	"internal/record":      {"encode", "batch", "bufpool", "internal"},
	"internal/stamp":       {},
	"internal/msgpack":     {"internal"},
	"internal/compression": {},
	"internal/units":       {},
	"internal/vfs":         {},
	"internal/values":      {"bufpool", "internal"},
	"internal/redact":      {"bufpool", "internal"},
	"internal/testkit":     {"batch", "bufpool", "internal"},
	"encode":               {"batch", "bufpool", "internal"},
	"slab":                 {"batch", "internal"},
	"internal/slablog":     {"slab", "batch", "internal"},
	"internal/outputhook":  {"slab", "batch", "internal"},
	"deliver":              {"slab", "spool", "batch", "bufpool", "internal"},
	"spool":                {"batch", "internal"},
	"internal/diskqueue":   {"spool", "batch", "bufpool", "internal"},
	"file":                 {"slab", "deliver", "spool", "batch", "bufpool", "internal"},
	"internal/stdio":       {"slab", "deliver", "spool", "batch", "bufpool", "internal"},
	"netsink":              {"", "transport", "file", "encode", "slab", "deliver", "spool", "batch", "bufpool", "internal"},
	"":                     {"encode", "file", "slab", "deliver", "spool", "batch", "bufpool", "internal"},
	"fluent":               {"", "transport", "file", "slab", "deliver", "spool", "encode", "batch", "bufpool", "internal"},
	"loki":                 {"", "httpclient", "transport", "file", "slab", "deliver", "spool", "encode", "batch", "bufpool", "internal"},
	"otlp":                 {"", "httpclient", "transport", "file", "slab", "deliver", "spool", "encode", "batch", "bufpool", "internal"},
	"httpsink":             {"", "httpclient", "transport", "file", "slab", "deliver", "spool", "encode", "batch", "bufpool", "dedup", "internal"},
	"internal/httpsend":    {"httpclient", "transport", "batch", "internal"},
	"transport":            {},
	"internal/tlsfiles":    {"transport"},
	"httpclient":           {"transport", "batch", "internal"},
	"accesslog":            {},
	"dedup":                {},
	"internal/pattern":     {"encode", "batch", "bufpool", "internal"},
	"forebaytest":          {"", "file", "slab", "deliver", "spool", "encode", "batch", "bufpool", "internal"},
	"httpops":              {"", "file", "slab", "deliver", "spool", "encode", "batch", "bufpool", "internal"},
	"cmd":                  {"*"},
}

// coreMayLink lists the modules that the library, without the program, may add to the binary of a
// user.
var coreMayLink = []string{
	"github.com/golang/snappy", "github.com/gofrs/flock", "golang.org/x/sys",
}

// dependencies returns, for each package of the library and the program, the import paths of all
// packages that it imports directly or indirectly.
var dependencies = sync.OnceValues(func() (map[string][]string, error) {
	deps := map[string][]string{}
	for _, dir := range []string{"../..", "../../cmd"} {
		cmd := exec.Command("go", "list", "-f", "{{.ImportPath}} {{join .Deps \" \"}}", "./...")
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		for line := range strings.Lines(string(out)) {
			if f := strings.Fields(line); len(f) > 0 {
				deps[f[0]] = f[1:]
			}
		}
	}
	return deps, nil
})

func mustDependencies(t *testing.T) map[string][]string {
	t.Helper()
	deps, err := dependencies()
	if err != nil {
		t.Fatal(err)
	}
	return deps
}

// short returns the path of a package within this repository. It returns "cmd" for all packages of
// the program.
func short(path string) string {
	r := strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
	if strings.HasPrefix(r, "cmd/") {
		return "cmd"
	}
	return r
}

func may(from, to string) bool {
	for r := from; ; {
		if ok, known := allowed[r]; known {
			return slices.Contains(ok, "*") || slices.Contains(ok, to) ||
				slices.ContainsFunc(ok, func(a string) bool { return a != "" && strings.HasPrefix(to, a+"/") })
		}
		i := strings.LastIndex(r, "/")
		if i < 0 {
			return false
		}
		r = r[:i] // a subdirectory may import the packages that its parent may import
	}
}

func TestArrowsPointOneWay(t *testing.T) {
	for pkg, deps := range mustDependencies(t) {
		from := short(pkg)
		for _, dep := range deps {
			if dep != module && !strings.HasPrefix(dep, module+"/") {
				continue
			}
			if to := short(dep); !may(from, to) && to != from {
				t.Errorf("%q imports %q, which it must not know", from, to)
			}
		}
	}
}

func TestCoreLinksFewModules(t *testing.T) {
	for pkg, deps := range mustDependencies(t) {
		if r := short(pkg); r == "cmd" || strings.HasPrefix(r, "internal/") {
			continue
		}
		for _, dep := range deps {
			first, _, _ := strings.Cut(dep, "/")
			if !strings.Contains(first, ".") || strings.HasPrefix(dep, module) {
				continue
			}
			if !slices.ContainsFunc(coreMayLink, func(m string) bool { return strings.HasPrefix(dep, m) }) {
				t.Errorf("%s links %s", pkg, dep)
			}
		}
	}
}

// A program that logs to files does not link net/http; see docs/adr/0025.
func TestCoreLinksNoHTTP(t *testing.T) {
	deps := mustDependencies(t)
	for _, r := range []string{"", "/encode", "/slab", "/file", "/batch", "/bufpool", "/netsink", "/fluent", "/spool", "/deliver"} {
		if slices.Contains(deps[module+r], "net/http") {
			t.Errorf("%s reaches net/http", module+r)
		}
	}
}

// programOrder lists the packages of the program from the lowest to the highest. A package imports
// only lower ones, and the packages tool and run do not import each other.
var programOrder = []string{"exit", "console", "process", "setting", "dest", "output", "intake", "input", "config", "tool", "run", "program"}

// A package of the program imports only packages before it in programOrder; see docs/adr/0051.
func TestProgramHasLayers(t *testing.T) {
	const prefix = module + "/cmd/internal/"
	for i, name := range programOrder {
		deps, ok := mustDependencies(t)[prefix+name]
		if !ok {
			t.Errorf("there is no package %s", prefix+name)
		}
		for _, higher := range programOrder[i+1:] {
			if slices.Contains(deps, prefix+higher) {
				t.Errorf("%s imports %s", name, higher)
			}
		}
		if name == "run" && slices.Contains(deps, prefix+"tool") {
			t.Error("run imports tool")
		}
	}
}
