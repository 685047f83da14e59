package join

import (
	"bytes"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// split returns the records into which the named rules divide text. rule may contain several names.
func split(t *testing.T, rule, text string) (got []string) {
	t.Helper()
	rules, err := Parse(strings.Fields(rule))
	if err != nil {
		t.Fatal(err)
	}
	limits := &Limits{MaxRecord: 1 << 20, MaxLines: 1 << 20}
	limits.Default()
	j := New[int](rules, limits, func(r Record) error { got = append(got, string(r.Text)); return nil }, nil)
	for line := range strings.Lines(text) {
		if err := j.Line([]byte(line), func() int { return 0 }, 0, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Release(time.Time{}, true); err != nil {
		t.Fatal(err)
	}
	return got
}

const (
	frames = "panic({0x709ae0?, 0x7a2f70?})\n\t/go/panic.go:860 +0x13a\nmain.main()\n\t/x.go:1 +0x1\n"
	panics = "panic: a\n\ngoroutine 1 [running]:\n" + frames
	group  = "  + Exception Group Traceback (most recent call last):\n  |   File \"a.py\", line 1, in f\n  |     raise eg\n" +
		"  | ExceptionGroup: eg (2 sub-exceptions)\n  | a note\n  | \n  | of three lines\n" +
		"  +-+---------------- 1 ----------------\n    | ValueError: 1\n    +---------------- 2 ----------------\n"
	closing = "    +------------------------------------\n"
	handled = "\nDuring handling of the above exception, another exception occurred:\n\n"
	trace   = "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\nValueError: x\n"
)

// The text of each test case is divided into the records in want.
func TestStackTraceIsOneRecord(t *testing.T) {
	for _, tt := range []struct {
		name, rule string
		want       []string
	}{
		{"panic is a frame", "go", []string{"before\n", panics, "after\n"}},
		{"panic is a frame of a net/http handler", "go", []string{
			"before\n",
			"10:00:00 http: panic serving 127.0.0.1:1: boom\ngoroutine 34 [running]:\n" + frames + "created by net/http.(*Server).Serve in goroutine 8\n\t/go/server.go:1 +0x2\n",
			"10:00:00 http2: panic serving 127.0.0.1:1: boom\ngoroutine 35 [running]:\n" + frames,
			"after\n",
		}},
		{"deferred, recovered and repeated panics", "go", []string{
			"panic: a\n\tpanic: b\n\tpanic: c\n\td\n\ngoroutine 1 [running]:\n" + frames,
			"panic: a [recovered, repanicked]\n\ngoroutine 1 [running, locked to thread]:\n" + frames,
			"panic: a [recovered]\n\tpanic: b\n[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x1]\n\ngoroutine 1 [running]:\n" + frames,
			"after\n",
		}},
		{"a program that panics at each start", "go", []string{panics, panics, panics + "exit status 2\n", panics + "exit status 2\n", "goroutines: 3\n"}},
		{"a call without a dot in its name is not a frame", "go", []string{panics, "done()\n", panics, "store.put(user)\n", panics, "...\n", panics, "goroutine pool is up\n"}},
		{"functions of assembler and cgo", "go", []string{
			"panic: a\n\ngoroutine 1 gp=0x1 m=0 mp=0x2 [running]:\ncmpbody()\n\t/a.s:1 +0x1\n_cgoexp_68064283a28c_back(0x4b2f80?)\n\t_cgo_gotypes.go:77 +0x25\ncrosscall2()\n\t/a.s:2 +0x1\nnon-Go function\n\tpc=0x1\n",
			"after\n",
		}},
		{"ancestors", "go", []string{
			"panic: x\n\ngoroutine 21 [running]:\nmain.f()\n\t/x.go:2\ncreated by main.g in goroutine 20\n\t/x.go:3\n[originating from goroutine 20]:\nmain.g(...)\n\t/x.go:3\n...additional frames elided...\ncreated by main.main\n\t/x.go:4\n",
			"created by alice\n",
		}},
		{"fatal errors after a line with the reason", "go", []string{
			"runtime: goroutine stack exceeds 1000000000-byte limit\nruntime: sp=0x1 stack=[0x1, 0x2]\nfatal error: stack overflow\n\nruntime stack:\nruntime.throw({0x1, 0xe})\n\t/go/panic.go:1\n\ngoroutine 1 gp=0x1 m=3 mp=0x2 [running]:\nmain.f(0x1)\n\t/x.go:1\n...44739036 frames elided...\nmain.main()\n\t/x.go:2\n",
			"runtime: program exceeds 12-thread limit\nfatal error: thread exhaustion\n\nruntime stack:\nruntime.mstart()\n\t/go/proc.go:1\n",
			"unexpected fault address 0xa000\nfatal error: fault\n[signal SIGSEGV: x]\n\ngoroutine 1 gp=0x1 m=0 mp=0x2 [running]:\n" + frames,
			"fatal error: no goroutines (main called runtime.Goexit) - deadlock!\n",
			"fatal error: all goroutines are asleep - deadlock!\n\ngoroutine 1 [chan receive (nil chan)]:\nmain.main()\n\t/x.go:2\nexit status 2\n",
			"runtime: all is well\n",
		}},
		{"signals", "go", []string{
			"SIGQUIT: quit\nPC=0x48f221 m=0 sigcode=0\n\ngoroutine 0 gp=0x1 m=0 mp=0x2 [idle]:\nruntime.futex(0x1)\n\t/go/sys.s:1\ngoroutine 22 gp=0x3 m=2 mp=0x4 [running]:\n\tgoroutine running on other thread; stack unavailable\n" +
				"created by main.main in goroutine 1\n\t/x.go:1\n\nrax    0xca\nrflags 0x202\n\n-----\n\n" +
				"SIGQUIT: quit\nPC=0x48f223 m=2 sigcode=0\n\ngoroutine 0 gp=0x3 m=2 mp=0x4 [idle]:\nruntime.futex(0x1)\n\t/go/sys.s:1\nrax    0x0\n",
			"SIGSEGV: segmentation violation\nPC=0x4a8930 m=0 sigcode=1 addr=0x0\nsignal arrived during cgo execution\n\ngoroutine 1 gp=0x1 m=0 mp=0x2 [syscall]:\nmain._Cfunc_crash()\n\t_cgo_gotypes.go:68\n",
			"SIGTERM: shutting down\n",
			"\n",
			"SIGINT: a second time\n",
			"after\n",
		}},
		{"stacks that log has printed", "go", []string{
			"before\n",
			"2026/11/26 10:00:00 goroutine 1 [running]:\nruntime/debug.Stack()\n\t/go/stack.go:26 +0x5e\nmain.main()\n\t/x.go:1\n",
			"2026/11/26 10:00:00 stack=goroutine 7 [chan send, 2 minutes]:\nmain.main()\n\t/x.go:1\n",
			"goroutine 1 [running]:\nmain.main()\n\t/x.go:1\n",
			"goroutine 1 [running]:\nmain.main()\n\t/x.go:1\n",
			"a goroutine 7 says [x]: hello\n",
			"regoroutine 1 [x]:\n",
			"my goroutine x [y]:\n",
			"after\n",
		}},
		{"dumps", "go", []string{"goroutine 1 [running]:\n" + frames + "\ngoroutine 21 [select (no cases)]:\nmain.f()\n\t/x.go:1\ncreated by main.main in goroutine 1\n\t/x.go:2\n", "after\n"}},

		{"a group ends with its last line", "python", []string{"before\n", group + "    | ValueError: 2\n    | of two lines\n" + closing, "plain one\n", "  plain two\n", "  | 1 | 2 |\n", "plain three\n"}},
		{"two groups", "python", []string{group + closing, group + closing, trace, group + closing}},
		{"groups in groups", "python", []string{
			group + "    | Exception Group Traceback (most recent call last):\n    |   File \"a.py\", line 1, in f\n    | ExceptionGroup: in (2 sub-exceptions)\n" +
				"    +-+---------------- 1 ----------------\n      | ValueError: 1\n      +---------------- 2 ----------------\n      | ValueError: 2\n      +------------------------------------\n" +
				"    +---------------- 3 ----------------\n    | ValueError: 3\n    | \n    | During handling of the above exception, another exception occurred:\n    | \n" +
				"    | Traceback (most recent call last):\n    |   File \"a.py\", line 3, in f\n    | ValueError: 4\n" + closing,
			"plain\n",
		}},
		{"chains", "python", []string{group + closing + handled + trace, "plain\n", trace + handled + group + closing, "plain\n", group + closing + handled + group + closing + handled + trace, "plain\n"}},
		{"a group that was not raised", "python", []string{"before\n", "  | ExceptionGroup: eg (1 sub-exception)\n  +-+---------------- 1 ----------------\n    | ValueError: 1\n" + closing, "plain\n"}},

		// A trace is recognized even if it begins in a line that contains ERROR.
		{"traces of several languages, auto", "auto", []string{"10:00 ERROR " + trace, "10:00 ERROR x\n", panics, "10:00 ERROR goroutine 1 [running]:\n" + frames, "10:00 ERROR x\n", group + closing, "plain\n"}},
		{"traces of several languages, names in another order", "java python go", []string{"10:00 ERROR " + trace, "10:00 ERROR goroutine 1 [running]:\n" + frames, "10:00 ERROR x\njava.lang.Error: x\n\tat a.B.c(B.java:1)\n", "plain\n"}},
	} {
		for _, rule := range []string{tt.rule, "auto"} {
			if got := split(t, rule, strings.Join(tt.want, "")); !slices.Equal(got, tt.want) {
				t.Errorf("%s, rule %s: got\n%s\nwant\n%s", tt.name, rule, strings.Join(got, "║"), strings.Join(tt.want, "║"))
			}
		}
	}
}

// crashes contains functions that crash the program or print a stack trace.
var crashes = map[string]func(){
	"panic":      func() { panic(errors.New("a\nb")) },
	"deferred":   func() { defer func() { panic("b") }(); panic("a") },
	"recovered":  func() { defer func() { panic(fmt.Sprint(recover(), " again")) }(); panic("a") },
	"repanicked": func() { defer func() { panic(recover()) }(); panic("a") },
	"goexit":     func() { defer func() { panic("b") }(); runtime.Goexit() },
	"goroutine":  func() { go func() { panic("a") }(); select {} },
	"nil":        func() { var p *Limits; p.Default() },
	"fatal":      func() { new(sync.Mutex).Unlock() },
	"overflow":   func() { debug.SetMaxStack(1 << 20); overflow(nil) },
	"quit":       func() { p, _ := os.FindProcess(os.Getpid()); p.Signal(syscall.SIGQUIT); select {} },
	"log":        func() { log.Printf("%s", debug.Stack()) },
	"print":      func() { debug.PrintStack() },
	"http": func() {
		s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("boom") }))
		http.Get(s.URL)
		s.Close()
	},
}

// overflow calls itself without end.
//
//go:noinline
func overflow(p *[64]int) int {
	if p != nil && p[0] == 2 { // never true, so the stack overflows
		return 0
	}
	var a [64]int
	a[0] = 1
	return overflow(&a) + a[1] + len(p)
}

// Stack traces of the installed Go version are recognized. The test runs its own binary, which
// crashes.
func TestTracesOfInstalledGoAreJoined(t *testing.T) {
	const crashVar = "FOREBAY_TEST_CRASH"
	if name := os.Getenv(crashVar); name != "" {
		crashes[name]()
		os.Exit(0)
	}
	for name := range crashes {
		if name == "quit" && runtime.GOOS == "windows" {
			continue
		}
		for _, level := range []string{"single", "all", "system"} {
			var stderr bytes.Buffer
			cmd := exec.Command(os.Args[0], "-test.run=^TestTracesOfInstalledGoAreJoined$")
			cmd.Env = append(os.Environ(), crashVar+"="+name, "GOTRACEBACK="+level, "GORACE=atexit_sleep_ms=0")
			if level == "all" {
				cmd.Env = append(cmd.Env, "GODEBUG=tracebackancestors=5")
			}
			cmd.Stderr = &stderr
			cmd.Run() // returns an error, because the program crashes
			want := []string{"before\n", stderr.String(), "exit\n", "after\n"}
			if got := split(t, "go", strings.Join(want, "")); !slices.Equal(got, want) || stderr.Len() < 200 {
				t.Errorf("%s, %s:\n%s", name, level, strings.Join(got, "║"))
			}
		}
	}
}

// Tracebacks of the installed version of Python are recognized.
func TestTracesOfInstalledPythonAreJoined(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil || exec.Command(python, "-c", "ExceptionGroup").Run() != nil {
		t.Skip("there is no python3 with exception groups")
	}
	const program = `
import sys, traceback
def caught(f, *a):
    try: f(*a)
    except Exception as e: return e
def fail(e, *notes):
    for n in notes: e.add_note(n)
    raise e
def chained(e, cause):
    try: raise cause
    except Exception: raise e
def group(*es): return ExceptionGroup("eg", es)
def both(): fail(group(caught(fail, ValueError(1), "a note", "two\n\nlines"), ValueError(2)), "of the group", "")
def nested(): fail(group(caught(both), group(ValueError(3), group(caught(both)))))
def nested2(): fail(group(ValueError(3), caught(nested), caught(chained, caught(both), KeyError(1))))
def many(): fail(group(*[ValueError(i) for i in range(20)]))
def after(): chained(RuntimeError(1), caught(both))
def before(): chained(caught(both), RuntimeError(1))
def twice(): chained(group(ValueError(1)), caught(nested))
def cause():
    try: nested2()
    except Exception as e: raise RuntimeError(1) from e
def star():
    try: both()
    except* ValueError: raise TypeError(1)
def bare(): raise SystemExit(traceback.print_exception(group(ValueError(1))))
for name in sys.argv[1:]:
    print("--- " + name, file=sys.stderr)
    try: globals()[name]()
    except Exception: traceback.print_exc()
`
	names := strings.Fields("both nested nested2 many after before twice cause star bare") // bare must be last, because it ends the process
	var stderr bytes.Buffer
	cmd := exec.Command(python, append([]string{"-c", program}, names...)...)
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		t.Fatal(err, stderr.String())
	}
	traces := regexp.MustCompile(`(?m)^--- \w+\n`).Split(stderr.String(), -1)[1:]
	if len(traces) != len(names) {
		t.Fatal(stderr.String())
	}
	for i, name := range names {
		want := []string{"before\n", traces[i], "plain one\n", traces[i], "plain two\n"}
		if got := split(t, "python", strings.Join(want, "")); !slices.Equal(got, want) || !strings.Contains(want[1], "+----") {
			t.Errorf("%s:\n%s", name, strings.Join(got, "║"))
		}
	}
}
