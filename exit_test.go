package forebay

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/slab"
)

// Exit closes the routers with CloseOnExit, and then ends the program.
func TestExitClosesRouters(t *testing.T) {
	var code int
	osExit = func(c int) { code = c }
	defer func() { osExit = os.Exit }()
	var dst lines
	sw, err := deliver.NewOutput(deliver.ToWriter(&dst), &deliver.OutputOptions{Slab: slab.Options{FlushInterval: -1}})
	if err != nil {
		t.Fatal(err)
	}
	d := &device{}
	a := newRouter(t, CloseOnExit(), Route(plain(), Writer(sw, CloseWriter())))
	b := newRouter(t, CloseOnExit(), Route(plain(), Writer(devClose{d}, Direct(), CloseWriter())))
	c := newRouter(t, Route(plain(), Writer(devClose{&device{}}, Direct(), CloseWriter())))
	for _, r := range []*Router{a, b, c} {
		r.Logger().Info("last words")
	}
	Exit(3)
	if code != 3 || len(dst.all()) != 1 || d.called() != "close" {
		t.Errorf("code %d, slab wrote %q, device %q", code, dst.all(), d.called())
	}
	if c.h.core.closed.Load() {
		t.Error("a router was closed that did not ask for it")
	}
	if n := len(exitList.list()); n != 0 {
		t.Errorf("%d routers still listed", n)
	}
}

// Exit ends the program even if a router hangs.
func TestExitReturnsAlthoughRouterHangs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var took time.Duration
		begun := time.Now()
		osExit = func(int) { took = time.Since(begun) }
		defer func() { osExit = os.Exit }()
		stderr := captureStderr(t)
		release := make(chan struct{})
		d := &device{do: func(string) error { <-release; return nil }}
		newRouter(t, quiet(), CloseOnExit(), Route(plain(), Writer(devClose{d}, Direct(), CloseWriter(), Name("hung"))))
		newRouter(t, quiet(), CloseOnExit(), To(deliver.SendFunc(deliver.Traits{}, func(context.Context, *batch.Batch) batch.Outcome { return batch.FailedOutcome(errTest) }), Name("down"))).Logger().Info("m")
		Exit(0)
		if took != defaultExitTimeout {
			t.Errorf("Exit took %v", took)
		}
		close(release)
		got := stderr()
		for _, want := range []string{"output hung: not finished in time", "output down: deliver: close: 1 record lost"} {
			if !strings.Contains(got, want) {
				t.Errorf("standard error %q\nlacks %q", got, want)
			}
		}
	})
}

// captureStderr redirects os.Stderr to a file until the returned function is called.
func captureStderr(t *testing.T) (text func() string) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	old := os.Stderr
	os.Stderr = f
	back := sync.OnceFunc(func() { os.Stderr = old; f.Close() })
	t.Cleanup(back)
	return func() string {
		back()
		b, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
}

// Without OnError, a failing output is reported on standard error, once.
func TestFailureIsReportedOnStandardError(t *testing.T) {
	stderr := captureStderr(t)
	n := 0
	w := writerFunc(func(p []byte) (int, error) {
		if n++; n < 4 {
			return 0, errTest
		}
		return len(p), nil
	})
	r := newRouter(t, Route(plain(), Writer(w, Direct(), Name("disk"))))
	for range 5 {
		r.Logger().Info("m")
	}
	r.h.core.events.wait(context.Background())
	if got, want := stderr(), "forebay: disk: write: test error\nforebay: disk: recovered (3 records)\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// The crash report of the runtime is appended to the file.
func TestCrashOutputIsAppended(t *testing.T) {
	if err := CrashOutput(filepath.Join(t.TempDir(), "no", "such", "dir")); err == nil || !strings.HasPrefix(err.Error(), "forebay: cannot open crash output: ") {
		t.Error(err)
	}
	name := filepath.Join(t.TempDir(), "crash")
	if err := os.WriteFile(name, []byte("earlier\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := os.StartProcess(exe, []string{exe, "-test.run", "^TestCrashChild$"}, &os.ProcAttr{
		Env: append(os.Environ(), "FOREBAY_CRASH="+name),
	})
	if err != nil {
		t.Fatal(err)
	}
	if st, err := p.Wait(); err != nil || st.Success() {
		t.Fatalf("the child ended with %v, %v", st, err)
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(got), "earlier\n") || !strings.Contains(string(got), "panic: a crash on purpose") {
		t.Errorf("%q", got)
	}
}

// A crash report may contain data of the program, so the file has mode 0600.
func TestCrashOutputIsPrivate(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no permission bits")
	}
	name := filepath.Join(t.TempDir(), "crash")
	if err := CrashOutput(name); err != nil {
		t.Fatal(err)
	}
	defer debug.SetCrashOutput(nil, debug.CrashOptions{})
	if fi, err := os.Stat(name); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", fi, err)
	}
}

// TestCrashChild is the child of TestCrashOutputIsAppended.
func TestCrashChild(t *testing.T) {
	name := os.Getenv("FOREBAY_CRASH")
	if name == "" {
		t.Skip("run by TestCrashOutputIsAppended")
	}
	if err := CrashOutput(name); err != nil {
		t.Fatal(err)
	}
	panic("a crash on purpose")
}
