package testkit

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// unfinished holds the seeds of the running random tests. If a test exceeds the time limit, package
// testing ends the process with a panic and calls no Cleanup functions. Therefore a timer prints
// these seeds shortly before the limit.
var unfinished = newSeedPrinter()

// A seedPrinter prints the seeds of tests that have not ended.
type seedPrinter struct {
	mu    sync.Mutex
	seeds []*runningSeed
}

// A runningSeed describes how to repeat a test that runs.
type runningSeed struct {
	test   string
	repeat string // guarded by mu of seedPrinter while the test runs
}

// newSeedPrinter starts the timer. It runs when the package is initialized, and therefore outside
// of any synctest bubble.
func newSeedPrinter() *seedPrinter {
	p := &seedPrinter{}
	for _, arg := range os.Args[1:] {
		value, ok := strings.CutPrefix(arg, "-test.timeout=")
		if limit, err := time.ParseDuration(value); ok && err == nil && limit > 0 {
			time.AfterFunc(limit-min(limit/10, 2*time.Second), func() { fmt.Fprint(os.Stderr, p.text()) })
		}
	}
	return p
}

// text returns a line for each test that runs.
func (p *seedPrinter) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b strings.Builder
	for _, s := range p.seeds {
		fmt.Fprintf(&b, "%s is close to the time limit; to repeat: %s\n", s.test, s.repeat)
	}
	return b.String()
}

func (p *seedPrinter) add(t testing.TB, variable string, seed uint64) *runningSeed {
	s := &runningSeed{test: t.Name()}
	p.set(s, variable, seed)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seeds = append(p.seeds, s)
	return s
}

func (p *seedPrinter) set(s *runningSeed, variable string, seed uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.repeat = variable + "=" + strconv.FormatUint(seed, 10)
}

func (p *seedPrinter) remove(s *runningSeed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seeds = slices.DeleteFunc(p.seeds, func(other *runningSeed) bool { return other == s })
}
