package program

import (
	"os"
	"strings"
	"testing"

	"github.com/forebay-log/forebay/cmd/internal/config"
)

// All faults of a configuration are reported at once, each at the position of its value. A fault
// that is only a consequence of another fault is not reported.
func TestFaultsAtOnce(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"two values of an output", `
inputs: {in: {type: stdin}}
outputs:
  a:
    to: file:/tmp/x
    slabs: 1
    rotate-size: much
`, `6:12 slabs|7:18 rotate-size`},
		{"values that do not fit together", `
inputs: {in: {type: stdin}}
outputs:
  a:
    to: file:/none/x
    rotate-size: 1MiB
    rotate-every: 1ms
    compress: gzip
    fsync: true
    when-full: spill
`, `5:9 /none|7:19 rotate-every|9:12 fsync and compress|10:16 spill`},
		{"labels, password and address", `
inputs: {in: {type: stdin}}
outputs:
  a:
    to: loki://u:p@h
    label: {ok: x, c: ""}
    password-file: /none
    too-old: never
    metadata: [fine, ""]
`, `5:9 user or password|6:23 label|7:20 password-file|8:14 too-old|9:22 metadata`},
		{"it has no scheme", `
inputs: {in: {type: stdin}}
outputs:
  a:
    to: flie:x
    slabs: 0
    from: [inn, in]
    where: {level: [warn, loud]}
`, `5:9 flie|6:12 slabs|7:12 no input inn|8:27 loud`},
		{"syslog", `
inputs: {in: {type: stdin}}
outputs:
  a:
    to: syslog+tls://h:99999
    facility: local9
    tls-cert: /none
    level: loud
`, `5:9 port|6:15 facility|7:15 tls-cert|8:12 loud`},
		{"an input", `
inputs:
  "bad name":
    type: tail
    files: ["[x", ok, "[y"]
    multiline: ["((", "^a", "))"]
    from: middle
    zone: Nowhere
    units: [x]
outputs: {o: {to: "stdout:"}}
`, `4:5 not a valid name|5:13 [x|5:23 [y|6:17 multiline|6:29 multiline|7:11 middle|8:11 Nowhere|9:12 journal`},
		{"an input without a type", `
inputs:
  a: {zone: Nowhere, max-conns: 0}
outputs: {o: {to: "stdout:"}}
`, `3:6 type is missing|3:13 Nowhere|3:33 max-conns`},
		{"a listener", `
inputs:
  a:
    type: forward
    tls-cert: /none
    tls-client-ca: /none2
    user: u
    shared-key-file: /none3
    listen: h:99999
    max-conns: -1
outputs: {o: {to: "stdout:"}}
`, `5:15 tls-cert|7:11 user|8:22 /none3|9:13 99999|10:16 -1`},
		{"transforms", `
inputs: {in: {type: stdin}}
transforms:
  - redact: {patterns: ["((", "ok", "x*"], keys: ["*", a], kyes: [b]}
    drop: true
  - wehre: {a: b}
    rename: {a: "", b: b, c: d}
  - drpo: true
  - sample: {one-in: 0, bye: x}
  - remove: [a, ""]
    where: {level: [loud, warn, louder], "": x}
outputs: {o: {to: "stdout:"}}
`, `4:5 2 actions|4:25 ((|4:37 x*|4:51 * alone|4:60 kyes|6:5 wehre|7:17 no new name|7:24 that name|8:5 drpo|9:22 0|9:25 bye|10:17 empty|11:21 loud|11:33 louder|11:46 empty`},
		{"together, beside other faults", `
pprof: true
drain-timeout: soon
inputs:
  a: {type: tail, files: "/tmp/*.log", state: s, zone: Nowhere}
  b: {type: tail, files: /var/y, state: ./s}
  c: {type: stdin}
  d: {type: stdin}
  e: {type: loki, listen: ":3100"}
  f: {type: forward, listen: ":3100"}
outputs:
  o: {to: "file:/tmp/x.log", level: loud}
  p: {to: "file:/tmp/./x.log", dead-letter: /tmp/x.log}
  q: {to: "stdout:", from: [a, b, c, d, e], fallback: "loki://h"}
  r: {to: "loki://h"}
`, `2:8 pprof|3:16 soon|5:56 Nowhere|6:41 state|8:13 standard input|10:30 listens|12:11 files of inputs.a|12:37 loud|13:11 same file|13:11 files of|13:45 same file|13:45 files of|14:55 destination of outputs.r`},
		{"places that cannot be", `
inputs:
  a: {type: tail, files: x, state: /dev/null}
  b: {type: stdin}
outputs:
  o: {to: "loki://h", spool: /dev/null/s, dead-letter: /none/dead}
  p: {to: "loki://h2", spool: none/at/alls, dead-letter: /dev, crash-safe: /dev/null, level: loud}
  q: {to: "loki://h3", crash-safe: /dev/null/x, crash-safe-required: true}
`, `3:36 not a directory|6:30 /dev/null is not a directory|6:56 /none does not exist|7:58 is a directory|7:94 loud|8:36 cannot be created`},
		{"round and round", `
inputs:
  a: {type: forward, listen: "127.0.0.1:24224"}
  b: {type: loki, listen: ":3200"}
outputs:
  o: {to: "forward://localhost"}
  p: {to: "forward://127.0.0.1:24224", from: b}
  q: {to: "loki://[::1]:3200"}
  r: {to: "forward://127.0.0.1:24225"}
  s: {to: "forward://10.0.0.1:24224"}
`, `6:11 inputs.a listens|7:11 return to this output|8:11 inputs.b`},
		{"round and round through each kind of listener", `
inputs:
  a: {type: syslog, listen: "tcp://127.0.0.1:5514"}
  b: {type: syslog, listen: "0.0.0.0:5515"}
  c: {type: syslog, listen: "unix:s/../s/sock"}
  d: {type: forward, listen: "unix:/run/f"}
  e: {type: loki, listen: "localhost:3101"}
  f: {type: syslog, listen: "udp://:5516"}
  g: {type: syslog, listen: "unixgram:/run/g"}
  h: {type: forward, listen: "127.0.0.2:24225"}
  i: {type: forward, listen: "[::]:24226"}
outputs:
  a1: {to: "tcp://127.0.0.1:5514"}
  a2: {to: "syslog+tls://localhost:5514"}
  a3: {to: "tcp://127.0.0.2:5514"}
  b1: {to: "syslog+tcp://127.9.9.9:5515"}
  b2: {to: "tcp://0.0.0.0:5515"}
  b3: {to: "tcp://[::1]:5515"}
  c1: {to: "unix:s/sock"}
  c2: {to: "syslog+unix:s/./sock"}
  d1: {to: "forward+unix:/run/f"}
  d2: {to: "unix:/run/f"}
  e1: {to: "http://127.0.0.1:3101/x"}
  f1: {to: "tcp://127.0.0.1:5516"}
  g1: {to: "unix:/run/g"}
  h1: {to: "forward://127.0.0.1:24225"}
  h2: {to: "forward+tls://127.0.0.2:24225"}
  i1: {to: "forward://127.0.0.1:24226"}
  j1: {to: "file:x", fallback: "loki://127.0.0.1:3101", from: e}
  j2: {to: "stdout:", fallback: "loki://127.0.0.1:3101", from: a}
`, `13:12 inputs.a|14:12 inputs.a|16:12 inputs.b|17:12 inputs.b|19:12 inputs.c|20:12 inputs.c|21:12 inputs.d|22:12 inputs.d|23:12 inputs.e|27:12 inputs.h|28:12 inputs.i|29:32 inputs.e|30:33 return to this output`},
		{"listeners at one address", `
inputs:
  a: {type: syslog, listen: "tcp://127.0.0.1:5514"}
  b: {type: syslog, listen: "udp://127.0.0.1:5514"}
  c: {type: syslog, listen: "127.0.0.1:5514"}
outputs:
  o: {to: "stdout:"}
`, `5:29 inputs.a also listens`},
		{"nobody takes it", `
inputs: {a: {type: stdin}, b: {type: forward}}
outputs: {o: {to: "stdout:", from: a, level: loud}}
`, `2:31 no output|3:46 loud`},
		// The names are misspelled. Faults that may be a consequence of this are not reported.
		{"names that are nearly known", `
input: {a: {type: stdin}}
outputs:
  o: {too: "file:x", level: loud}
  p: {to: "loki://h", spol: /x, fsync: true, when-full: spill, from: [a], spool-max: 1GiB}
  q: {to: "file:/none/x", mkdir: true}
`, `2:1 input|4:7 too|4:29 loud|5:23 spol|6:27 mkdir`},
		{"what was faulty is not missed", `
inputs:
  a: {type: tial, files: x}
  b: {type: tail, files: [""]}
  c: {type: forward, tls-cert: "${NONE}", tls-key: /k, user: u, password-file: "${NONE}"}
outputs:
  o: {to: "${NONE}", from: [a, nobody]}
  p: {to: "loki://h", spool: "", when-full: spill, spool-max: 1GiB}
  q: {to: "file:/none/x", mkdirs: perhaps, from: []}
`, `3:13 tial|4:27 empty|5:32 NONE|5:80 NONE|7:11 NONE|7:32 nobody|8:30 empty|9:35 mkdirs|9:50 empty`},
	} {
		_, faults := config.Parse([]byte(tt.text), noVariables, os.Stdin)
		want := strings.Split(tt.want, "|")
		for i, f := range faults {
			if i >= len(want) {
				t.Errorf("%s: %s, which is not one", tt.name, f.Error())
				continue
			}
			at, about, _ := strings.Cut(want[i], " ")
			if text := f.Error(); !strings.HasPrefix(text, at+": ") || !strings.Contains(text, about) {
				t.Errorf("%s: %s\nwant %s", tt.name, text, want[i])
			}
		}
		if len(faults) < len(want) {
			t.Errorf("%s: missed %s", tt.name, strings.Join(want[len(faults):], ", "))
		}
	}
}
