package falls_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/forebay-log/forebay/internal/bubble"
)

// A state says whether a fall still happens.
type state uint8

const (
	known  state = iota // it happens: its script must complain
	mended              // it does not: its script must not complain
)

// A fall is one entry of the list.
type fall struct {
	number   int    // in the report of the attack; 0: not in it
	name     string // tells entries of one number apart
	sentence string // the promise that it breaks
	state    state
	run      func(tb TB)
	realTime bool // it needs the machine's clock; else it runs in a synctest bubble
}

// TB is the part of testing.TB that scripts use. Errorf and Fatalf say that the
// fall happens. Broken says that the script cannot tell, because what leads up to
// the fall failed: that fails the test in either state.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Broken(format string, args ...any)
	TempDir() string
	Cleanup(func())
}

// A witness is the TB of one run. It records complaints instead of failing.
type witness struct {
	*testing.T
	mu   sync.Mutex
	said []string
}

func (w *witness) Errorf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, fmt.Sprintf(format, args...))
}

// Fatalf ends the goroutine of the script.
func (w *witness) Fatalf(format string, args ...any) {
	w.Errorf(format, args...)
	runtime.Goexit()
}

// Broken fails the test itself.
func (w *witness) Broken(format string, args ...any) {
	w.T.Helper()
	w.T.Errorf("the script is broken: "+format, args...)
	runtime.Goexit()
}

// testify runs a script and returns its complaints.
func testify(t *testing.T, run func(TB)) []string {
	w := &witness{T: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(w)
	}()
	<-done
	return w.said
}

// verdict returns what is wrong with the entry after a run that made these
// complaints, "" if nothing is.
func (f *fall) verdict(said []string) string {
	switch {
	case f.state == known && len(said) == 0:
		return fmt.Sprintf("fall %d (%s) no longer happens: mark it as mended", f.number, f.name)
	case f.state == mended && len(said) > 0:
		return fmt.Sprintf("fall %d (%s) happens again: %s:\n%s", f.number, f.name, f.sentence, strings.Join(said, "\n"))
	}
	return ""
}

func TestFalls(t *testing.T) {
	names := map[string]bool{}
	for _, f := range falls {
		name := fmt.Sprintf("%02d-%s", f.number, f.name)
		if names[name] || f.name == "" || f.sentence == "" {
			t.Errorf("%s: an entry needs a name of its own and a sentence", name)
		}
		names[name] = true
		t.Run(name, func(t *testing.T) {
			judge := func(t *testing.T) {
				said := testify(t, f.run)
				if v := f.verdict(said); v != "" && !t.Failed() {
					t.Error(v)
				} else if len(said) > 0 {
					t.Logf("known: %s", strings.Join(said, "\n"))
				}
			}
			if f.realTime {
				judge(t)
			} else {
				bubble.Test(t, judge)
			}
		})
	}
}

// TestVerdict: a known fall has to show, a mended one must not.
func TestVerdict(t *testing.T) {
	says := func(tb TB) { tb.Errorf("lost %d", 3); tb.Fatalf("stop"); tb.Errorf("never") }
	silent := func(TB) {}
	for _, c := range []struct {
		state state
		run   func(TB)
		want  string
	}{
		{known, says, ""},
		{known, silent, "no longer happens"},
		{mended, silent, ""},
		{mended, says, "lost 3\nstop"},
	} {
		f := fall{number: 7, name: "x", sentence: "a promise", state: c.state}
		v := f.verdict(testify(t, c.run))
		if (c.want == "") != (v == "") || !strings.Contains(v, c.want) || strings.Contains(v, "never") {
			t.Errorf("state %d: %q, want %q", c.state, v, c.want)
		}
	}
}

// background is the context of calls that need no deadline.
var background = context.Background()
