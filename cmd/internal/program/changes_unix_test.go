//go:build unix

package program

import (
	"context"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forebay-log/forebay/cmd/internal/config"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/run"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/internal/testkit"
)

// A runningConfig is a pipeline that runs with a configuration file.
type runningConfig struct {
	t        *testing.T
	dir      string
	p        *run.Pipeline
	messages *lockedText
	ended    chan error
}

// A lockedText collects the messages of a pipeline. It is safe for concurrent use.
type lockedText struct {
	mu sync.Mutex
	sb strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sb.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sb.String()
}

// await waits until the function isMet returns true. The text what names the condition in the error
// message.
func (r *runningConfig) await(what string, isMet func() bool) {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); !isMet(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("no %s within a minute\n%s", strings.TrimPrefix(what, "the "), r.messages)
		}
	}
}

// startRun starts forebay run with a configuration file that contains text. DIR in text stands for
// a new directory.
func startRun(t *testing.T, text string) *runningConfig {
	t.Helper()
	r := &runningConfig{t: t, dir: t.TempDir()}
	r.begin(text)
	return r
}

// begin starts forebay run with a configuration file that contains text. DIR in text stands for the
// directory of r.
func (r *runningConfig) begin(text string) {
	t := r.t
	t.Helper()
	r.messages, r.ended = new(lockedText), make(chan error, 1)
	r.write(text)
	file := filepath.Join(r.dir, configName)
	c, data, err := config.Load(file, os.Stdin)
	if err != nil {
		t.Fatal(err)
	}
	r.p = run.New(c, r.messages)
	r.p.Console.Plain = config.WithoutFlags
	r.p.Changes, r.p.File = run.NewReloader(file, data, os.Stdin, false), file
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { null.Close() })
	go func() { r.ended <- run.Run(r.p, null, null) }()
}

func (r *runningConfig) write(text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, configName), []byte(strings.ReplaceAll(text, "DIR", r.dir)), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// change replaces the text of the configuration file. It waits until the program reports that it
// has applied or rejected the change.
func (r *runningConfig) change(text string) string {
	r.t.Helper()
	before := len(r.messages.String())
	r.write(text)
	r.p.Signals <- syscall.SIGHUP
	var messages string
	r.await("the change", func() bool {
		messages = r.messages.String()[before:]
		return strings.Contains(messages, ": applied: ") || strings.Contains(messages, "nothing has changed") || strings.Contains(messages, "configuration is unchanged")
	})
	return messages
}

// end interrupts the run. It returns the messages and the error of the run.
func (r *runningConfig) end() (string, error) {
	r.t.Helper()
	r.p.Signals <- os.Interrupt
	err := <-r.ended
	return r.messages.String(), err
}

func (r *runningConfig) read(name string) string {
	b, _ := os.ReadFile(filepath.Join(r.dir, name))
	return string(b)
}

// The configuration changes at random, but always contains the outputs named all and net. At these
// outputs, each line arrives once and in order.
func TestChangesLoseNothing(t *testing.T) {
	rounds := testkit.Rounds(t, 8, 400)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	rng := testkit.Rand(testkit.Seed(t))
	variant := func() string {
		var sb strings.Builder
		sb.WriteString("drain-timeout: 20s\ninputs:\n")
		from := []string{"start", "end"}[rng.IntN(2)] // a new value of from changes the input
		fmt.Fprintf(&sb, "  tail: {type: tail, files: [\"DIR/in.log\"], state: DIR/state, from: %s, multiline: [go], format: %s}\n",
			from, []string{"text", "auto"}[rng.IntN(2)])
		sb.WriteString("  socket: {type: syslog, listen: \"unix:DIR/socket\"}\n")
		if rng.IntN(2) == 0 {
			sb.WriteString("  other: {type: forward, listen: \"unix:DIR/other\"}\n")
		}
		if rng.IntN(2) == 0 {
			sb.WriteString("transforms:\n  - {where: {msg: \"never*\"}, drop: true}\n")
		}
		sb.WriteString("outputs:\n")
		fmt.Fprintf(&sb, "  all: {to: \"file:DIR/out.log\", from: [tail], slabs: %d, slab-size: 4KiB}\n", 2+rng.IntN(2)) // a new number of slabs changes the output
		fmt.Fprintf(&sb, "  net: {to: \"file:DIR/net.log\", encode: json, level: %s}\n", []string{"debug", "trace"}[rng.IntN(2)])
		if rng.IntN(2) == 0 {
			fmt.Fprintf(&sb, "  extra: {to: \"file:DIR/extra%d.log\"}\n", rng.IntN(2))
		}
		return sb.String()
	}
	r := startRun(t, strings.Replace(variant(), "from: end", "from: start", 1))
	var c net.Conn
	r.await("the socket", func() (is bool) {
		var err error
		c, err = net.Dial("unix", filepath.Join(r.dir, "socket"))
		return err == nil
	})
	defer c.Close()

	in, err := os.Create(filepath.Join(r.dir, "in.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	stop := make(chan struct{})
	var files, sockets int
	var writers sync.WaitGroup
	write := func(n *int, w interface{ Write([]byte) (int, error) }, format string) {
		writers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := fmt.Fprintf(w, format, *n); err != nil {
					t.Error(err)
					return
				}
				*n++
				if *n%100 == 0 {
					time.Sleep(time.Millisecond) // pause, so that the reader can keep up
				}
			}
		})
	}
	write(&files, in, "file line %07d\n")
	write(&sockets, c, "<13>1 - host app - - - socket line %07d\n")
	for range rounds {
		messages := r.change(variant())
		if strings.Contains(messages, "unchanged") || strings.Contains(messages, "lost") {
			t.Fatal(messages)
		}
	}
	close(stop)
	writers.Wait()
	c.Close()
	r.await("the last lines", func() bool {
		return strings.Contains(r.read("out.log"), fmt.Sprintf("file line %07d\n", files-1)) &&
			strings.Contains(r.read("net.log"), fmt.Sprintf("socket line %07d", sockets-1))
	})
	messages, err := r.end()
	if err != nil {
		t.Errorf("%v\n%s", err, messages)
	}
	inOrder(t, r.read("out.log"), "file line ", files)
	inOrder(t, r.read("net.log"), "socket line ", sockets)
}

// inOrder checks that text contains each line with this prefix and a number from 0 to n-1 once, in
// order.
func inOrder(t *testing.T, text, prefix string, n int) {
	t.Helper()
	at := 0
	for line := range strings.Lines(text) {
		i := strings.Index(line, prefix)
		if i < 0 {
			continue
		}
		var got int
		fmt.Sscanf(line[i+len(prefix):], "%d", &got)
		if got != at {
			t.Fatalf("after %s%d comes %d", prefix, at-1, got)
		}
		at++
	}
	if at != n {
		t.Errorf("got %d lines with %q, want %d", at, prefix, n)
	}
}

// A configuration that cannot be applied is reported and changes nothing.
func TestRejectedChangeHasNoEffect(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	const good = "inputs: {a: {type: syslog, listen: \"unix:DIR/a\"}}\noutputs: {o: {to: \"file:DIR/out.log\"}}\n"
	r := startRun(t, good)
	r.await("the socket", func() bool { return strings.Contains(r.messages.String(), "listening") })
	taken, err := net.Listen("unix", filepath.Join(r.dir, "taken"))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, tt := range []struct{ text, want string }{
		{"inputs: {a: {type: syslog, listn: x}}\noutputs: {o: {to: \"file:DIR/out.log\"}}\n", "listn is unknown; did you mean listen?"},
		{strings.Replace(good, "out.log\"", "none/out.log\"", 1), "there is no directory DIR/none; mkdirs creates it"},
		{"max-record: 1KiB\nmetrics: :0\n" + good, "max-record and metrics can change only at a start"},
		{good, "nothing has changed"},
	} {
		if messages := strings.ReplaceAll(r.change(tt.text), r.dir, "DIR"); !strings.Contains(messages, tt.want) {
			t.Errorf("%s\nsays %s, want %s", tt.text, messages, tt.want)
		}
	}
	// If a changed input cannot be opened, this is reported, and it continues with its previous
	// settings.
	messages := r.change(good + "# more\n" + "name: forebay\n")
	if !strings.Contains(messages, "nothing has changed") {
		t.Error(messages)
	}
	before := len(r.messages.String())
	r.write(strings.Replace(good, "DIR/a", "DIR/taken", 1))
	r.p.Signals <- syscall.SIGHUP
	r.await("the refusal", func() bool {
		return strings.Contains(r.messages.String()[before:], "the input continues with its previous settings")
	})
	if messages := r.change(good); !strings.Contains(messages, "nothing has changed") {
		t.Error(messages)
	}
	c, err := net.Dial("unix", filepath.Join(r.dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, "<13>hello\n")
	c.Close()
	r.await("the line", func() bool { return r.read("out.log") != "" })
	if messages, err := r.end(); err != nil {
		t.Errorf("%v\n%s", err, messages)
	}
}

// If an output does not deliver within --drain-timeout, a change that would close the output is
// rejected.
func TestChangeOfAHungOutput(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "deaf")) // does not accept connections
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	text := "drain-timeout: 300ms\ninputs: {a: {type: syslog, listen: \"unix:DIR/a\"}}\noutputs:\n  o: {to: \"forward+unix:" + listener.Addr().String() + "\", slabs: 2}\n  p: {to: \"file:DIR/out.log\"}\n"
	r := startRun(t, text)
	var c net.Conn
	r.await("the socket", func() bool {
		c, err = net.Dial("unix", filepath.Join(r.dir, "a"))
		return err == nil
	})
	defer c.Close()
	fmt.Fprint(c, "<13>hello\n")
	r.await("the line", func() bool { return r.read("out.log") != "" })
	if messages := r.change(strings.Replace(text, "slabs: 2", "slabs: 3", 1)); !strings.Contains(messages, "output o has undelivered records and no spool to keep them in (1 record); the running configuration is unchanged") {
		t.Error(messages)
	}
	// A change of the level does not close the output, so it is applied.
	if messages := r.change(strings.Replace(text, "slabs: 2", "slabs: 2, level: warn", 1)); !strings.Contains(messages, "applied: output o: level warn, not none") {
		t.Error(messages)
	}
	fmt.Fprint(c, "<14>below\n<11>an error\n")
	r.await("the lines", func() bool { return strings.Contains(r.read("out.log"), "an error") })
	if n := r.p.Outputs()[0].Below.Load(); n != 1 {
		t.Errorf("%d records are below the level, want 1", n)
	}
	if messages, err := r.end(); exit.Code(err) != exit.RuntimeCode {
		t.Errorf("%v\n%s", err, messages)
	}
}

// The level of an output can be changed over HTTP.
func TestLevelChangesOverHTTP(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	r := startRun(t, "inputs: {a: {type: syslog, listen: \"unix:DIR/a\"}}\noutputs: {o: {to: \"file:DIR/o\", level: error}, p: {to: \"file:DIR/p\"}}\n")
	var c net.Conn
	var err error
	r.await("the socket", func() bool {
		c, err = net.Dial("unix", filepath.Join(r.dir, "a"))
		return err == nil
	})
	defer c.Close()
	for _, tt := range []struct {
		method, query, body string
		code                int
		want                string
	}{
		{"GET", "", "", 200, `{"o":"error","p":""}`},
		{"PUT", "?output=o&level=info", "", 200, `{"o":"info","p":""}`},
		{"PUT", "", "output=p&level=warn", 200, `{"o":"info","p":"warn"}`},
		{"PUT", "?output=x&level=warn", "", 404, "output=x: there is no such output; there is "},
		{"PUT", "?level=warn", "", 404, "output=: there is no such output"},
		{"PUT", "?output=o&level=loud", "", 400, "level=loud: \"loud\" is not a level"},
		{"PUT", "?output=o", "", 400, "level=: "},
		{"PUT", "?output=p&level=none", "", 200, `{"o":"info","p":""}`},
	} {
		w := httptest.NewRecorder()
		run.View{P: r.p}.Level(w, httptest.NewRequest(tt.method, "/-/level"+tt.query, strings.NewReader(tt.body)))
		if got := w.Body.String(); w.Code != tt.code || !strings.Contains(got, tt.want) {
			t.Errorf("%s %s %s: %d %s, want %d %s", tt.method, tt.query, tt.body, w.Code, got, tt.code, tt.want)
		}
	}
	fmt.Fprint(c, "<15>debug\n<14>info\n")
	r.await("the lines", func() bool { return strings.Contains(r.read("p"), "info") && r.read("o") != "" })
	if got := r.read("o"); got != "info\n" {
		t.Errorf("%q", got)
	}
	if messages, err := r.end(); err != nil {
		t.Errorf("%v\n%s", err, messages)
	}
}

// The journal input delivers entries, and stores the cursor of the last delivered entry.
func TestJournalContinuesAfterDelivered(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	bin := t.TempDir()
	script := "#!/bin/sh\ncase \"$*\" in *c2*) sleep 600; exit;; esac\n" +
		`echo '{"__CURSOR":"c1","__REALTIME_TIMESTAMP":"1700000000000000","PRIORITY":"6","_SYSTEMD_UNIT":"shop.service","MESSAGE":"{\"level\":\"warn\",\"msg\":\"json\"}"}'` + "\n" +
		`echo '{"__CURSOR":"c2","__REALTIME_TIMESTAMP":"1700000001000000","PRIORITY":"3","SYSLOG_IDENTIFIER":"kernel","MESSAGE":"plain"}'` + "\nexec sleep 600\n"
	if err := os.WriteFile(filepath.Join(bin, "journalctl"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	const text = "inputs: {j: {type: journal, state: DIR/state, from: start}}\noutputs: {o: {to: \"file:DIR/out\", encode: json}}\n"
	r := startRun(t, text)
	want := `{"level":"warn","msg":"json","time":"2023-11-14T22:13:20.000000000Z","unit":"shop.service"}` + "\n" +
		`{"time":"2023-11-14T22:13:21.000000000Z","level":"ERROR","msg":"plain","identifier":"kernel"}` + "\n"
	r.await("the entries", func() bool { return r.read("out") == want })
	if messages, err := r.end(); err != nil {
		t.Errorf("%v\n%s", err, messages)
	}
	if state, err := os.ReadFile(filepath.Join(r.dir, "state", "cursor")); err != nil || !strings.Contains(string(state), "c2") {
		names, _ := os.ReadDir(filepath.Join(r.dir, "state"))
		t.Errorf("%q, %v, %v", state, err, names)
	}
}

// If a change has closed an output and cannot open it again, with the new or the old configuration,
// the run ends with an error. The next run reads the records that arrived after the change.
func TestOutputThatCannotBeReopenedEndsRun(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	text := "inputs: {a: {type: tail, files: [\"DIR/in.log\"], from: start, state: DIR/state}}\noutputs: {o: {to: \"file:DIR/sub/out.log\", slabs: 4}}\n"
	dir := t.TempDir()
	r := &runningConfig{t: t, dir: dir}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "in.log"), []byte("one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.begin(text)
	r.await("the line", func() bool { return r.read("sub/out.log") == "one\n" })
	// The configuration is loaded while the directory exists. The directory is then removed or
	// renamed before the change opens the output.
	sub := filepath.Join(dir, "sub")
	slabs := func(n string) *config.Pipeline {
		r.write(strings.Replace(text, "slabs: 4", "slabs: "+n, 1))
		next, _, err := config.Load(filepath.Join(dir, configName), os.Stdin)
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	next := slabs("5")
	// The output may create its file again during the removal.
	r.await("the removal", func() bool { return os.RemoveAll(sub) == nil })
	if _, err := r.p.Change(t.Context(), next, os.Stdin); err == nil || !strings.Contains(err.Error(), "an output does not deliver; the running configuration is unchanged") {
		t.Fatalf("got %v, want that the change is rejected, because the directory is missing", err)
	}
	if err := os.Mkdir(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := r.p.Change(t.Context(), next, os.Stdin); err != nil {
		t.Fatal(err)
	}
	next = slabs("6")
	if err := os.Rename(sub, sub+".moved"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.p.Change(t.Context(), next, os.Stdin); err == nil || !strings.Contains(err.Error(), run.ErrStranded.Error()) {
		t.Fatalf("got %v, want %v", err, run.ErrStranded)
	}
	f, err := os.OpenFile(filepath.Join(dir, "in.log"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(f, "two")
	f.Close()
	r.await("the end of the input", func() bool { return r.p.Read().Records == 2 })
	if messages, err := r.end(); err == nil {
		t.Errorf("got no error at the end of the run: %s", messages)
	}
	if err := os.Mkdir(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	r.begin(text)
	// The first line is repeated if its position was not stored before the run ended.
	r.await("the other line", func() bool { return strings.TrimPrefix(r.read("sub/out.log"), "one\n") == "two\n" })
	if messages, err := r.end(); err != nil {
		t.Errorf("%v\n%s", err, messages)
	}
}

// If an input waits for a full output, a change of this input is rejected, after changePatience at
// the latest. The other inputs are not delayed.
func TestChangeOfAStuckInput(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "deaf")) // does not accept connections
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	text := "drain-timeout: 300ms\ninputs:\n  a: {type: tail, files: [\"DIR/a.log\"], from: start}\n  b: {type: tail, files: [\"DIR/b.log\"], from: start}\noutputs:\n" +
		"  hung: {to: \"forward+unix:" + listener.Addr().String() + "\", from: a, slabs: 2, slab-size: 4KiB}\n  ok: {to: \"file:DIR/ok.log\", from: b}\n"
	r := &runningConfig{t: t, dir: t.TempDir()}
	for name, text := range map[string]string{"a.log": strings.Repeat("a line of some length\n", 5000), "b.log": "one\n"} {
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.begin(text)
	r.await("the full output", func() bool { return r.read("ok.log") == "one\n" && r.p.Outputs()[0].Slabs().Waiting > 0 })
	if messages := r.change(strings.ReplaceAll(text, "from: start", "from: start, partial-after: 2s")); !strings.Contains(messages, "input a is waiting for room in an output; the running configuration is unchanged") {
		t.Error(messages)
	}
	f, err := os.OpenFile(filepath.Join(r.dir, "b.log"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(f, "two")
	f.Close()
	r.await("the other input", func() bool { return r.read("ok.log") == "one\ntwo\n" })
	if err := (run.View{P: r.p}).SetLevel(t.Context(), "ok", setting.Level{}); err != nil {
		t.Errorf("the level of another output: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := (run.View{P: r.p}).SetLevel(ctx, "hung", setting.Level{}); err == nil {
		t.Error("a level is set while a record waits for room")
	}
	if messages, err := r.end(); exit.Code(err) != exit.RuntimeCode {
		t.Errorf("%v\n%s", err, messages)
	}
}
