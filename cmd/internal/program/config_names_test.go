package program

import (
	"os"
	"strings"
	"testing"

	"github.com/forebay-log/forebay/cmd/internal/config"
)

// A fault that a driver finds is reported once, with the position and the name of the key. An empty
// member of a list is also reported once.
func TestFaultsOfDrivers(t *testing.T) {
	const text = `
inputs:
  a: {type: tail, files: ["", x, ""]}
  j: {type: journal, units: [""], identifiers: [x, ""]}
outputs:
  o: {to: "loki://h", metadata: [""], tenant: "a/b"}
  p: {to: "loki://h", label-from: ["", x, ""], tenant: "a/b", metadata: [a, ""]}
  q: {to: "loki://h", label: {"": x, a: y, c: ""}, metadata: ""}
  r: {to: "otlps://h", resource: [""], tls-cert: x}
  s: {to: "http://h/", header: [""], param: {"": x}, hec: [""]}
  t: {to: "loki://h", from: ["", a, j], label-from: [` + "A_VERY_LONG_NAME" + `]}
  u: {to: "loki+https://h", tls-key: x, user: u, password-file: /dev/null, bearer-token-file: /dev/null}
`
	want := []string{
		"3:27 inputs.a.files[0]: it is empty", "3:34 inputs.a.files[2]: it is empty",
		"4:30 inputs.j.units[0]: it is empty", "4:52 inputs.j.identifiers[1]: it is empty",
		"6:34 outputs.o.metadata[0]: it is empty", "6:47 outputs.o.tenant: it has characters",
		"7:36 outputs.p.label-from[0]: it is empty", "7:43 outputs.p.label-from[2]: it is empty", "7:56 outputs.p.tenant: it has characters", "7:77 outputs.p.metadata[1]: it is empty",
		"8:35 outputs.q.label.: its name is empty", "8:47 outputs.q.label", "8:62 outputs.q.metadata: it is empty",
		"9:35 outputs.r.resource[0]: it is empty", "9:50 outputs.r.tls-cert: tls-cert and tls-key belong together",
		"10:33 outputs.s.header[0]: it is empty", "10:50 outputs.s.param.: its name is empty", "10:60 outputs.s.hec[0]: it is empty",
		"11:30 outputs.t.from[0]: it is empty", "11:54 outputs.t.label-from[0]: ",
		"12:38 outputs.u.tls-key: tls-cert and tls-key belong together", "12:95 outputs.u.bearer-token-file",
	}
	_, faults := config.Parse([]byte(strings.Replace(text, "A_VERY_LONG_NAME", strings.Repeat("x", 2000), 1)), noVariables, os.Stdin)
	for i := range max(len(faults), len(want)) {
		if i >= len(faults) {
			t.Errorf("missed %s", strings.Join(want[i:], "\n"))
			break
		}
		got := strings.Replace(faults[i].Error(), ": ", " ", 1)
		if i >= len(want) {
			t.Errorf("%s, which is not one", got)
		} else if i >= len(want) || !strings.HasPrefix(got, strings.SplitN(want[i], " ", 2)[0]+" ") || !strings.HasPrefix(got, want[i]) && !strings.HasPrefix(got, want[i]+"-") {
			t.Errorf("%s\nwant %s", got, want[i])
		}
		if strings.Contains(got, "\n") || strings.Contains(got, "_attrs") || strings.Contains(got, "_file") || strings.Contains(got, "max_") {
			t.Errorf("%s", got)
		}
	}
}

// Faults before a syntax error are reported. A fault that may be a consequence of the syntax error
// is not reported. For example, an undefined input may be defined after the error.
func TestFaultsBeforeSyntax(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"a value without quotes", `
inputs: {in: {typ: stdin}}
outputs:
  o:
    to: stdout:
    slabs: 1
`, `2:15 typ|5:9 write it in quotes: "stdout:"|6:12 slabs`},
		{"a line without a colon", `
pprof: true
inputs:
  in: {type: stdin, zone: Nowhere}
  other: {type: forward}
outputs:
  o: {to: "stdout:", from: [in, later], slabs: 1}
  p:
    to: "stderr:"
    slabs 1
  q: {to: "nowhere:"}
metrics: ":9090"
`, `4:27 Nowhere|7:48 slabs|10:5 non-map value is specified; write KEY: VALUE, with a space after the colon; the rest of the file, from line 8 on, was not checked`},
		{"outputs before inputs", `
outputs: {o: {to: "stdout:", from: b, level: loud}}
inputs:
  a: {type: stdin}
  b: {type: "tail}
`, `2:46 loud|5:13 from line 5 on`},
		{"at the first line", "a: [\n", `1:4 the rest of the file was not checked`},
	} {
		_, faults := config.Parse([]byte(tt.text), noVariables, os.Stdin)
		want := strings.Split(tt.want, "|")
		for i := range max(len(faults), len(want)) {
			if i >= len(faults) || i >= len(want) {
				t.Errorf("%s: %v\nwant %s", tt.name, faults, tt.want)
				break
			}
			at, about, _ := strings.Cut(want[i], " ")
			if got := faults[i].Error(); !strings.HasPrefix(got, at+": ") || !strings.Contains(got, about) {
				t.Errorf("%s: %s\nwant %s", tt.name, got, want[i])
			}
		}
	}
}
