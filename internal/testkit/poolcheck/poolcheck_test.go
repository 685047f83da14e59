package poolcheck

import (
	"runtime"
	"strings"
	"testing"

	"github.com/forebay-log/forebay/bufpool"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
)

func make64(debug bool) *bufpool.Pool {
	p, err := bufpool.New(bufpool.Config{SizeClasses: []int{64}, Debug: debug})
	if err != nil {
		panic(err)
	}
	return p
}

// collectUntilReleased runs the garbage collector until it has freed the buffers that p retains.
func collectUntilReleased(p *bufpool.Pool) {
	for range 1000 {
		if p.Stats().Classes[0].Released > 0 {
			return
		}
		runtime.GC()
		runtime.Gosched()
	}
}

type tests func() int

func (f tests) Run() int { return f() }

func TestRunnerReportsMisuse(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		use        func(p *bufpool.Pool)
		code       int
	}{
		{"clean", "", func(p *bufpool.Pool) { buf, _ := p.Get(5); p.Put(buf) }, 0},
		{"double Put", "double Put", func(p *bufpool.Pool) { buf, _ := p.Get(5); p.Put(buf); p.Put(buf) }, 1},
		{"double Put of what somebody else may have", "double Put", func(p *bufpool.Pool) {
			a, _ := p.Get(5)
			p.Put(a)
			b, _ := p.Get(5)
			p.Put(a)
			p.Put(b)
		}, 1},
		{"double Put of what was given up", "double Put", func(p *bufpool.Pool) {
			a, _ := p.Get(5)
			p.Put(a)
			collectUntilReleased(p)
			p.Put(a)
		}, 1},
		{"write to what was given up", "write after Put", func(p *bufpool.Pool) {
			a, _ := p.Get(5)
			p.Put(a)
			collectUntilReleased(p)
			a[0] = 1
		}, 1},
		{"write after Put", "write after Put", func(p *bufpool.Pool) { buf, _ := p.Get(5); p.Put(buf); buf[1] = 1 }, 1},
		{"leak", "never Put", func(p *bufpool.Pool) { p.Get(5) }, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pool := make64(false)
			before := pool
			var out strings.Builder
			r := Tests(tests(func() int { tt.use(pool); return 0 }), Use{&pool, make64})
			r.out = &out
			if code := r.check(); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			if !strings.Contains(out.String(), tt.want) || tt.want == "" && out.Len() > 0 {
				t.Errorf("reported %q, want %q", out.String(), tt.want)
			}
			if pool == before {
				t.Error("the tests ran with the pool as it was")
			}
		})
	}
	pool := make64(false)
	if code := Tests(tests(func() int { return 2 }), Use{&pool, make64}).check(); code != 2 {
		t.Errorf("exit code %d of tests that exit with 2", code)
	}
}

func TestPlainRestoresDebugPool(t *testing.T) {
	pool := make64(true)
	debug := pool
	t.Run("test", func(t *testing.T) {
		Use{&pool, make64}.Plain(t)
		if n := allocs.PerRun(10, func() { buf, _ := pool.Get(5); pool.Put(buf) }); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
	if pool != debug {
		t.Error("the pool in debug mode is not back")
	}
}
