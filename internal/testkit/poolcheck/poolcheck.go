// Package poolcheck runs the tests of a package with its pools in debug mode.
//
//	var pools = poolcheck.Use{Pool: &scratch, Make: newScratch}
//
//	func TestMain(m *testing.M) { os.Exit(poolcheck.Tests(m, pools).Run()) }
//
// Tests that count allocations must call [Use.Plain] first, because debug mode allocates.
package poolcheck

import (
	"flag"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/forebay-log/forebay/bufpool"
)

// A Use describes a pool that a package keeps in a variable.
type Use struct {
	Pool **bufpool.Pool                 // address of the variable
	Make func(debug bool) *bufpool.Pool // returns a new pool for the variable
}

// Plain replaces the pool with one without debug mode until t ends. No other goroutine may use the
// pool when Plain is called or when t ends.
func (u Use) Plain(t testing.TB) {
	was := *u.Pool
	*u.Pool = u.Make(false)
	t.Cleanup(func() { *u.Pool = was })
}

// A Runner runs tests and then checks the pools. goleak.VerifyTestMain accepts it instead of a
// testing.M.
type Runner struct {
	tests interface{ Run() int }
	uses  []Use
	out   io.Writer
}

// Tests returns a Runner of the tests of m, with all pools in debug mode.
func Tests(m interface{ Run() int }, uses ...Use) *Runner {
	return &Runner{tests: m, uses: uses, out: os.Stderr}
}

// Run runs the tests and returns the exit code. The exit code reports a failure if a test has
// failed, or if a buffer was misused or never returned. Run also prints these buffers. Benchmarks
// use the pools without debug mode.
func (r *Runner) Run() int {
	flag.Parse()
	if f := flag.Lookup("test.bench"); f != nil && f.Value.String() != "" {
		return r.tests.Run()
	}
	return r.check()
}

func (r *Runner) check() int {
	for _, u := range r.uses {
		*u.Pool = u.Make(true)
	}
	code := r.tests.Run()
	for _, u := range r.uses {
		for _, f := range (*u.Pool).Faults() {
			fmt.Fprintln(r.out, f)
			code = max(code, 1)
		}
		for _, l := range (*u.Pool).Leaks() {
			fmt.Fprintln(r.out, l)
			code = max(code, 1)
		}
	}
	return code
}
