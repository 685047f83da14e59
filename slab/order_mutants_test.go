package slab

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A mutant is a change to the Writer that breaks the order, or what rests on it.
// The tests of order must turn red with each of them, and for that reason: with
// misplaced tickets above all.
type mutant struct {
	name  string
	edits []edit
	run   string         // the test that sees it first; empty: all of them
	seen  *regexp.Regexp // what it must say; nil: order
}

// An edit replaces old, which must occur exactly once in file.
type edit struct{ file, old, new string }

var mutants = []mutant{
	// Every record has its ticket, none is wasted, and so the account stays right:
	// a call that needs the slow path leaves its ticket there for a record that is
	// stored, which with Block every record is.
	{name: "the ticket is taken before the lock", run: "^TestOrder$/^tiny_slabs$", edits: []edit{
		{"writer.go", "\t\treturn w.putChecked(p, m)\n\t}\n\tif !w.mu.put.TryLock() { // lockPut, inlined\n\t\tw.mu.waitPut()\n\t}\n" +
			"\tif len(p)+batch.SlotBytes > w.room || m.Level >= w.flush.Level() {\n\t\treturn w.putSlow(p, m)\n\t}\n" +
			"\tw.next++\n\tw.stow(p, w.next, ",
			"\t\treturn w.putChecked(p, m)\n\t}\n" +
				"\tearly := atomic.AddUint64(&w.next, 1)\n\tif early%64 == 0 {\n\t\truntime.Gosched()\n\t}\n\tif !w.mu.put.TryLock() { // lockPut, inlined\n\t\tw.mu.waitPut()\n\t}\n" +
				"\tif len(p)+batch.SlotBytes > w.room || m.Level >= w.flush.Level() {\n\t\tw.early = append(w.early, early)\n\t\treturn w.putSlow(p, m)\n\t}\n" +
				"\tw.stow(p, early, "},
		{"state.go", "\tnext   uint64         // tickets given out so far\n", "\tnext   uint64 // tickets given out so far\n\tearly  []uint64\n"},
		{"writer.go", "\tw.next++\n\treturn w.next\n", "\tt := w.early[0]\n\tw.early = w.early[1:]\n\treturn t\n"},
	}},
	{name: "an idle flush overtakes full slabs", edits: []edit{
		{"drain.go", "\tif w.queue.n > 0 && !w.limited {\n\t\treturn true\n", "\tif n := w.queue.n; w.d.timerDue && n > 0 {\n" +
			"\t\tif w.cutLocked(); w.queue.n > n {\n\t\t\tp := w.queue.remove(n)\n" +
			"\t\t\tw.queue.head = (w.queue.head - 1 + len(w.queue.ring)) % len(w.queue.ring)\n" +
			"\t\t\tw.queue.ring[w.queue.head] = p\n\t\t\tw.queue.n++\n\t\t\tw.queue.records += p.len()\n\t\t\tw.queue.bytes += p.size\n\t\t}\n\t}\n" +
			"\tif w.queue.n > 0 && !w.limited {\n\t\treturn true\n"},
	}},
	{name: "an oversize record overtakes the slab before it", edits: []edit{
		{"full.go", "\tw.cutLocked()\n\ts := b.slot(0)\n", "\ts := b.slot(0)\n"},
	}},
	{name: "Flush does not wait for what is queued", seen: flushBroken, edits: []edit{
		{"drain.go", "\t\tp := w.queue.at(0)\n\t\treturn p.first - 1\n", "\t\treturn w.next\n"},
	}},
}

// What the tests say of a broken order: by the tickets, by the times of the calls,
// by the numbers of the chain, or by program order. A panic or an account that does
// not balance is no answer: they would be seen without any check of the order.
var (
	orderBroken = regexp.MustCompile(`record .*(order is broken|order of a mutex is broken)|record .* has ticket \d+ and arrived after ticket \d+`)
	flushBroken = regexp.MustCompile(`Flush returned, and.*`)
)

// blind are edits that switch every check of the order off.
var blind = []edit{
	{"order_test.go", "if r.Ticket <= d.ticket && ", "if false && r.Ticket <= d.ticket && "},
	{"../internal/ordercheck/checker.go", "if r.chain <= c.chain {", "if false && r.chain <= c.chain {"},
	{"../internal/ordercheck/checker.go", "case cl.ret < s.bound:", "case false && cl.ret < s.bound:"},
	{"../internal/ordercheck/checker.go", "\tif i < len(*s) {\n", "\tif i < len(*s) {\n\t\tif !(*s)[i].here {\n\t\t\treturn nil\n\t\t}\n"},
}

// Every mutant must still fit the code. The first, the misplaced ticket, is tried
// always, by the test that sees it soonest; under torture all of them, by all tests
// of order, and with the checks of the order off, when the misplaced ticket must go
// unseen.
func TestMutantsAreSeen(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command: ", err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	torture := os.Getenv("FOREBAY_TORTURE") != ""
	for i, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			overlay, err := m.overlay(here, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			if i > 0 && !torture {
				return
			}
			t.Parallel()
			if why, out := m.try(t, goTool, overlay); why == "" {
				t.Errorf("no test saw it. The last run said:\n%s", out)
			} else {
				t.Logf("seen: %s", why)
			}
		})
		if m.run == "" {
			continue
		}
		t.Run(m.name+", checks off", func(t *testing.T) {
			m.edits = slices.Concat(m.edits, blind)
			overlay, err := m.overlay(here, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			if !torture {
				return
			}
			if why, _ := m.try(t, goTool, overlay); why != "" {
				t.Errorf("seen with every check of the order off: %s", why)
			}
		})
	}
}

// try runs the tests of the changed package, often if need be: whether two callers
// meet is chance, though the misplaced tickets let others go first now and then. It
// returns what the mutant was seen by, or "" and the output of the last run.
func (m mutant) try(t *testing.T, goTool, overlay string) (why string, out []byte) {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "slab.test")
	args := []string{"test", "-c", "-ldflags", "-s -w", "-o", bin, "-overlay", overlay}
	run := m.run
	if run == "" {
		args = append(args, "-tags", "forebay_points")
		run = "^TestOrder(|WithDelays)$"
	}
	if out, err := exec.Command(goTool, append(args, ".")...).CombinedOutput(); err != nil {
		t.Fatalf("does not compile any more, adapt it: %v\n%s", err, out)
	}
	seen := m.seen
	if seen == nil {
		seen = orderBroken
	}
	for range 40 {
		cmd := exec.Command(bin, "-test.short", "-test.timeout", "1m", "-test.run", run)
		cmd.Env = append(os.Environ(), "FOREBAY_TORTURE=")
		var err error
		if out, err = cmd.CombinedOutput(); err == nil {
			continue
		}
		if why = string(seen.Find(out)); why != "" {
			return why, out
		}
	}
	return "", out
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
		changed := filepath.Join(dir, filepath.Base(file))
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
