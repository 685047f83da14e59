package slab

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A mutant is a change to the Writer that breaks the order, or what rests on it.
// The tests of order must turn red with each of them: with misplaced tickets
// above all.
type mutant struct {
	name  string
	edits []edit
}

// An edit replaces old, which must occur exactly once in file.
type edit struct{ file, old, new string }

var mutants = []mutant{
	{"the ticket is taken before the lock", []edit{
		{"writer.go", "\tif !w.special {\n\t\tw.mu.Lock()\n", "\tearly := atomic.AddUint64(&w.next, 1)\n\tif !w.special {\n\t\tw.mu.Lock()\n"},
		{"writer.go", "\tw.next++\n\tb := w.cur\n", "\tb := w.cur\n"},
		{"writer.go", "\t\tw.next, uint64(m.Time), ", "\t\tearly, uint64(m.Time), "},
	}},
	{"the ticket is taken before the lock of the lane", []edit{
		{"shard.go", "\tl := &w.sh.lanes[h]\n\tif !l.mu.TryLock() {", "\tearly := w.sh.g.Add(1)\n\tl := &w.sh.lanes[h]\n\tif !l.mu.TryLock() {"},
		{"shard.go", "\tt := w.storeLane(l, p, m)\n\tl.mu.Unlock()\n\tif points {", "\tt := early\n\tw.storeLane(l, p, m)\n\tl.cur.slot(l.cur.n - 1).Ticket = early\n\tl.mu.Unlock()\n\tif points {"},
	}},
	{"the cut is fixed after the lanes were swept", []edit{
		{"merge.go", "\ts.left, s.over = g.scatter(upTo)\n", "\tupTo = s.g.Load()\n\ts.left, s.over = g.scatter(upTo)\n"},
	}},
	{"the lanes begin with old tickets", []edit{
		{"shard.go", "\ts.g.Store(w.next)\n", ""},
	}},
	{"one shard goes on with old tickets", []edit{
		{"merge.go", "\t\tw.next = upTo\n", ""},
	}},
	{"a write beside the lanes takes a plain ticket", []edit{
		{"shard.go", "\tif w.sh.multi {\n\t\treturn w.sh.g.Add(1)\n\t}\n\tw.next++\n", "\tw.next++\n"},
	}},
	{"an idle flush overtakes full slabs", []edit{
		{"drain.go", "\tif w.queue.n > 0 && !w.limited {\n\t\treturn true\n", "\tif n := w.queue.n; w.d.timerDue && n > 0 {\n" +
			"\t\tif w.cutLocked(); w.queue.n > n {\n\t\t\tp := w.queue.remove(n)\n" +
			"\t\t\tw.queue.head = (w.queue.head - 1 + len(w.queue.ring)) % len(w.queue.ring)\n" +
			"\t\t\tw.queue.ring[w.queue.head] = p\n\t\t\tw.queue.n++\n\t\t}\n\t}\n" +
			"\tif w.queue.n > 0 && !w.limited {\n\t\treturn true\n"},
	}},
	{"an oversize record overtakes the slab before it", []edit{
		{"full.go", "\tw.cutLocked()\n\ts := b.slot(0)\n", "\ts := b.slot(0)\n"},
	}},
	{"Flush does not wait for what is queued", []edit{
		{"drain.go", "\t\tp := w.queue.at(0)\n\t\treturn p.first - 1\n", "\t\treturn w.next\n"},
	}},
}

// reasons find why a test turned red, the best first.
var reasons = []*regexp.Regexp{
	regexp.MustCompile(`record .*(order is broken|order of a mutex is broken)|record .* arrived after.*`),
	regexp.MustCompile(`Flush returned, and.*|.*did not arrive`),
	regexp.MustCompile(`account does not balance.*|panic: .*|.*damaged.*`),
}

func reason(out string) string {
	for _, r := range reasons {
		if why := r.FindString(out); why != "" {
			return why
		}
	}
	return ""
}

// Every mutant must still fit the code. The first, the misplaced ticket, is tried
// always; the others, which compile the package once each, under torture.
func TestMutantsAreSeen(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command: ", err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			overlay, err := m.overlay(here, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			if i > 0 && os.Getenv("FOREBAY_TORTURE") == "" {
				return
			}
			cmd := exec.Command(goTool, "test", "-tags", "forebay_points", "-overlay", overlay, "-count", "1", "-timeout", "1m",
				"-run", "^TestOrder(|WithDelays)$", ".")
			cmd.Env = append(os.Environ(), "FOREBAY_TORTURE=")
			out, err := cmd.CombinedOutput()
			switch why := reason(string(out)); {
			case strings.Contains(string(out), "[build failed]") || strings.Contains(string(out), "[setup failed]"):
				t.Errorf("does not compile any more, adapt it:\n%s", out)
			case err == nil:
				t.Errorf("no test turned red")
			case why == "":
				t.Errorf("turned red for another reason:\n%s", out)
			default:
				t.Logf("seen: %s", why)
			}
		})
	}
}

// overlay writes the changed files to dir and returns the file for go test
// -overlay.
func (m mutant) overlay(here, dir string) (string, error) {
	text := map[string]string{}
	for _, e := range m.edits {
		if text[e.file] == "" {
			b, err := os.ReadFile(filepath.Join(here, e.file))
			if err != nil {
				return "", err
			}
			text[e.file] = string(b)
		}
		if n := strings.Count(text[e.file], e.old); n != 1 {
			return "", fmt.Errorf("%s has %d times what is to be changed, want once; adapt the mutant:\n%s", e.file, n, e.old)
		}
		text[e.file] = strings.Replace(text[e.file], e.old, e.new, 1)
	}
	var o struct{ Replace map[string]string }
	o.Replace = map[string]string{}
	for file, s := range text {
		changed := filepath.Join(dir, file)
		if err := os.WriteFile(changed, []byte(s), 0o600); err != nil {
			return "", err
		}
		o.Replace[filepath.Join(here, file)] = changed
	}
	b, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, b, 0o600)
}
