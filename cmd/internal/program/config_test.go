package program

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forebay-log/forebay/cmd/internal/config"
	"github.com/forebay-log/forebay/cmd/internal/input"
	"github.com/forebay-log/forebay/cmd/internal/setting"
)

func noVariables(string) (string, bool) { return "", false }

// withoutVar returns a configuration in which a temporary directory replaces /var, where this user
// may not write.
func withoutVar(t *testing.T, config string) []byte {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "log"), 0o700); err != nil {
		t.Fatal(err)
	}
	return []byte(strings.ReplaceAll(config, "/var/", dir+"/"))
}

// The example that forebay init writes is valid, also if its commented-out lines are enabled.
func TestExampleConfig(t *testing.T) {
	if _, faults := config.Parse([]byte(exampleConfig), noVariables, os.Stdin); len(faults) > 0 {
		t.Error(faults)
	}
	var all strings.Builder
	for line := range strings.Lines(exampleConfig) {
		rest, is := strings.CutPrefix(strings.TrimLeft(line, " "), "# ")
		if indent := len(line) - len(strings.TrimLeft(line, " ")); is && (strings.Contains(rest, ": ") || strings.HasSuffix(rest, ":\n")) && !strings.HasPrefix(rest, "A ") {
			line = strings.Repeat(" ", indent) + rest
		}
		all.WriteString(line)
	}
	for _, want := range []string{"metrics: :9090", "type: tail", "to: loki://localhost:3100", "sample: 100"} {
		if !strings.Contains(all.String(), "\n"+want) && !strings.Contains(all.String(), " "+want) {
			t.Errorf("%s is not in\n%s", want, all.String())
		}
	}
	if _, faults := config.Parse(withoutVar(t, all.String()), noVariables, os.Stdin); len(faults) > 0 {
		t.Errorf("%v\n%s", faults, all.String())
	}
}

// Each option of --to is also a key of an output, and the same values are valid for both.
func TestOptionsInFile(t *testing.T) {
	const text = "inputs: {in: {type: stdin}}\noutputs:\n  a:\n    to: loki://h\n    level: warn\n    slabs: 4\n    slab-size: 128KiB\n    when-full: block-for=1s\n" +
		"    retry-age: 7d\n    spool: x\n    label: {app: shop, env: x}\n    tenant: a\n    metadata: [user, order]\n" +
		"  b: {to: \"file:/tmp/x\", mkdirs: true, encode: json}\n"
	c, faults := config.Parse([]byte(text), noVariables, os.Stdin)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	a, b := c.Outs[0], c.Outs[1]
	if a.To != "loki://h" || a.Name != "a" || a.Level().String() != "warn" || a.Count("slabs") != 4 || a.Bytes("slab-size") != 128<<10 ||
		a.Text("when-full") != "block-for=1s" || a.Text("retry-age") != "168h" || a.Text("spool") != "x" || a.Text("label") != "app=shop, env=x" ||
		a.Text("metadata") != "user, order" || !a.Given["slabs"] || b.On("mkdirs") != true || b.Text("encode") != "json" {
		t.Errorf("%+v %+v", a, b)
	}
	for _, wrong := range []string{"slabs: 1", "slab-size: 3", "encode: xml", "level: loud", "spool: ''", "retry-age: soon", "mkdirs: perhaps", "slabs: [4]", "to: x"} {
		text := "inputs: {in: {type: stdin}}\noutputs:\n  a:\n    to: file:/tmp/x\n    " + wrong + "\n"
		if _, faults := config.Parse([]byte(text), noVariables, os.Stdin); len(faults) != 1 || faults[0].Line != 5 {
			t.Errorf("%s: %v", wrong, faults)
		}
	}
}

// Conflicts between inputs and outputs are reported as faults.
func TestConflictsAreFaults(t *testing.T) {
	for text, want := range map[string]string{
		"":        "inputs is missing",
		"inputs:": "inputs: it is empty",
		"inputs: {a: {type: stdin}, b: {type: stdin}}\noutputs: {o: {to: \"stdout:\"}}":                                                                          "1:38: inputs.b.type: another input already reads standard input",
		"inputs: {a: {type: stdin}}\noutputs: {o: {to: \"file:/tmp/x\"}, p: {to: \"file:/tmp/./x\"}}":                                                            "2:43: outputs.p.to: it is the same file as outputs.o.to",
		"inputs: {a: {type: stdin}}\noutputs: {o: {to: \"loki://h/x\"}, p: {to: \"loki://h:3100/x\"}}":                                                           "2:42: outputs.p.to: it is the same output as outputs.o: it would receive every record twice",
		"inputs: {a: {type: stdin}}\noutputs: {o: {to: \"http://h/x\", level: warn}, p: {to: \"http://h/x\"}, q: {to: \"http://h/y\"}, r: {to: \"http://h/y\"}}": "outputs.r.to: it is the same output as outputs.q: it would receive every record twice",
		"inputs: {a: {type: stdin}, b: {type: forward}}\noutputs: {o: {to: \"stdout:\", from: a}}":                                                               "1:31: inputs.b: no output accepts its records",
		"inputs: {a: {type: tail, files: x, state: s}, b: {type: tail, files: y, state: ./s}}\noutputs: {o: {to: \"stdout:\"}}":                                  "inputs.b.state: inputs.a uses it",
		"inputs: {a: {type: stdin}}\noutputs: {o: {to: \"file:/tmp/x\"}, p: {to: \"stdout:\", fallback: \"file:/tmp/x\"}}":                                       "outputs.p.fallback: it is the same file as outputs.o.to",
		"inputs: {a: {type: stdin}}\noutputs: {o: {to: \"stdout:\", dead-letter: d}, p: {to: \"stderr:\", dead-letter: ./d}}":                                    "outputs.p.dead-letter: it is the same file as outputs.o.dead-letter",
		"inputs: {a: {type: tail, files: \"/tmp/*.log\"}}\noutputs: {o: {to: \"file:/tmp/x.log\"}}":                                                              "outputs.o.to: it is one of the files of inputs.a",
		"inputs: {a: {type: tail, files: \"/tmp/[x\"}}\noutputs: {o: {to: \"stdout:\"}}":                                                                         "is not a valid pattern",
		"inputs: {a: {type: loki, listen: \":3100\"}, b: {type: forward, listen: \":3100\"}}\noutputs: {o: {to: \"stdout:\"}}":                                   "inputs.a also listens on :3100",
		"inputs: {a: {type: tail, files: x, from: middle}}\noutputs: {o: {to: \"stdout:\", from: a}}":                                                            "1:42: inputs.a.from: \"middle\" is not one of",
		"inputs: {a: {type: forward, user: u}}\noutputs: {o: {to: \"stdout:\"}}":                                                                                 "user and password-file belong together",
		"inputs: {a: {type: forward, shared-key-file: /none}}\noutputs: {o: {to: \"stdout:\"}}":                                                                  "cannot read shared-key-file /none",
		"inputs: {a: {type: tail, files: x, multiline: [\"((\"]}}\noutputs: {o: {to: \"stdout:\"}}":                                                              "multiline[0]: \"((\" is neither one of",
		"inputs: {a: {type: stdin}}\noutputs: {o: {to: \"stdout:\", when-full: spill}}":                                                                          "when-full spill needs spool DIR",
		"inputs: {a: {type: stdin}}\noutputs: {o: {to: \"loki://h:3100\", label: {x: y, \"x\": z}}}":                                                             "x is given twice",
		"inputs: {a: {type: stdin}}\noutputs: {o: {to: \"stdout:\", fallback: \"file:/none/x\"}}":                                                                "outputs.o.fallback: there is no directory /none",
		"inputs: {a: {type: stdin}}\noutputs: {o: {to: \"stdout:\", where: {}}}":                                                                                 "where: ",
		"inputs: {a: {type: stdin}}\noutputs: {o: {to: \"stdout:\", where: x}}":                                                                                  "where: the field is missing",
		"inputs: {a: {type: stdin}}\npprof: true\noutputs: {o: {to: \"stdout:\"}}":                                                                               "2:8: pprof: pprof needs metrics",
		"inputs: {a: {type: stdin}}\nmetrics: 9090\noutputs: {o: {to: \"stdout:\"}}":                                                                             "2:10: metrics: metrics 9090: use HOST:PORT",
		"inputs: {a: {type: stdin}}\nmetrics: \":9090x\"\noutputs: {o: {to: \"stdout:\"}}":                                                                       "2:10: metrics: metrics :9090x: the port must be 0 to 65535",
		"inputs: {a: {type: stdin}}\nmetrics: 127.0.0.1:99999\noutputs: {o: {to: \"stdout:\"}}":                                                                  "2:10: metrics: metrics 127.0.0.1:99999: the port must be 0 to 65535",
		"inputs: {a: {type: stdin}}\ncontrol: /none/dir/s\noutputs: {o: {to: \"stdout:\"}}":                                                                      "2:10: control: control /none/dir/s: there is no directory /none/dir",
		"inputs: {a: {type: stdin}}\ncontrol: /tmp/\noutputs: {o: {to: \"stdout:\"}}":                                                                            "2:10: control: control /tmp/ is a directory; name a socket in it",
		"inputs: {a: {type: stdin}}\ntransforms: [{add: {a: b}, drop: true}]\noutputs: {o: {to: \"stdout:\"}}":                                                   "it has 2 actions",
		"inputs: {a: {type: stdin}}\ntransforms: [{sample: {by: x}}]\noutputs: {o: {to: \"stdout:\"}}":                                                           "one-in is missing",
		"inputs: {a: {type: stdin}}\ntransforms: [{rename: x}]\noutputs: {o: {to: \"stdout:\"}}":                                                                 "rename: the field is missing",
	} {
		_, faults := config.Parse([]byte(text), noVariables, os.Stdin)
		var all []string
		for _, f := range faults {
			all = append(all, f.Error())
		}
		if got := strings.Join(all, "\n"); !strings.Contains(got, want) || len(faults) > 2 {
			t.Errorf("%s:\n%s\nwant %s", text, got, want)
		}
	}
}

// docs/CONFIG.md contains every key. All configurations in the documentation are valid.
func TestConfigPageContainsEveryKey(t *testing.T) {
	page, err := os.ReadFile("../../../docs/CONFIG.md")
	if err != nil {
		t.Fatal(err)
	}
	names := append(append(setting.OptionNames(), config.RuleNames...), config.ConfigKeys()...)
	for _, o := range input.Options {
		names = append(names, o.Name)
	}
	for _, name := range names {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/CONFIG.md does not have %s", name)
		}
	}
	pages, err := filepath.Glob("../../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range pages {
		page, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, block := range yamlBlocks(string(page)) {
			if !strings.Contains(block, "inputs:") || strings.Contains(block, "kafka") { // the tests of cmd/forebay-all check these blocks
				continue
			}
			if _, faults := config.Parse(withoutVar(t, block), func(string) (string, bool) { return "x", true }, os.Stdin); len(faults) > 0 {
				t.Errorf("%s, block %d: %v\n%s", name, i, faults, block)
			}
		}
	}
}

// yamlBlocks returns the YAML blocks of a page.
func yamlBlocks(page string) (blocks []string) {
	for _, part := range strings.Split(page, "```yaml\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		blocks = append(blocks, block)
	}
	return blocks
}

func FuzzFileConfig(f *testing.F) {
	f.Add(exampleConfig)
	f.Add("inputs: {a: {type: tail, files: [x], state: &s s}}\ntransforms: [{redact: {keys: [a]}}]\noutputs: {o: {to: \"stdout:\", where: {a: [b, \"!c\"]}}}")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "file") || strings.Contains(text, "tls") || len(text) > 10_000 {
			return // the configuration refers to files that exist only on the author's machine
		}
		c, faults := config.Parse([]byte(text), noVariables, os.Stdin)
		if len(faults) == 0 && (len(c.Outs) == 0 || len(c.Inputs) == 0) {
			t.Errorf("%q is sound", text)
		}
		for _, fault := range faults {
			if fault.Error() == "" || fault.Line < 0 {
				t.Errorf("%q: %+v", text, fault)
			}
		}
	})
}

// forebay validate lists the outputs whose failures make other outputs get records twice: network
// outputs without a spool that share an input with others.
func TestValidateRepeats(t *testing.T) {
	dir := t.TempDir()
	const in = "inputs: {app: {type: tail, files: x, state: st}, fw: {type: forward}, std: {type: stdin}, sys: {type: syslog}}\noutputs:\n  all: {to: \"stdout:\"}\n"
	for out, want := range map[string]string{
		"tcp: {to: \"tcp://h:1\"}":                          "app and fw",
		"tcp: {to: \"tcp://h:1\", from: app}":               "app",
		"tcp: {to: \"tcp://h:1\", spool: sp, from: app}":    "",
		"tcp: {to: \"tcp://h:1\", crash-safe: c, from: fw}": "",
		"tcp: {to: \"tcp://h:1\", from: [std, sys]}":        "",
		"file: {to: \"file:y\"}":                            "",
	} {
		path := filepath.Join(dir, "forebay.yaml")
		if err := os.WriteFile(path, []byte(in+"  "+out+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if want != "" {
			want = "outputs.tcp: if it is down when forebay ends, records of " + want + " are repeated, also for all; a spool prevents that\n"
		}
		var text strings.Builder
		cmd := newValidate(os.Stdin, &text)
		cmd.SetArgs([]string{path})
		if err := cmd.Execute(); err != nil {
			t.Fatal(err)
		}
		if _, notes, _ := strings.Cut(text.String(), "outputs\n"); notes != want {
			t.Errorf("%s: %q, want %q", out, notes, want)
		}
	}
}
