package program

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/config"
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/output"
	"github.com/forebay-log/forebay/cmd/internal/run"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/cmd/internal/tail"
	"github.com/forebay-log/forebay/cmd/internal/tool"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/record"
)

// newConfig returns a configuration of forebay pipe with the given destination addresses and
// defaults for everything else.
func newConfig(to ...string) *config.Pipeline {
	c := &config.Pipeline{
		Name: "forebay", To: to, Dests: dest.All(), Options: dest.NewGiven(),
		MaxRecord: setting.Size{Value: 1 << 20}, DrainTimeout: setting.Duration(time.Minute),
	}
	preset(&c.Options.Base, "slab-size", "4KiB")
	preset(&c.Options.Base, "slabs", "4")
	c.Ops.Control = config.NoControl // synctest does not support goroutines that wait on a socket
	return c
}

// preset sets the value of an option, as a default would.
func preset(c *dest.Spec, name, value string) {
	if err := c.ByName[name].Set(value); err != nil {
		panic(err)
	}
}

// giveOptions parses the flags in args into g.
func giveOptions(t *testing.T, g *dest.Given, args ...string) {
	t.Helper()
	cmd := &cobra.Command{}
	g.AddFlags(cmd, dest.AnyOption)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
}

// openAs opens a destination. to is its address, and args contains its flags.
func openAs(t *testing.T, dests []dest.Destination, to string, args ...string) (*dest.Target, error) {
	t.Helper()
	g := dest.NewGiven()
	if i := slices.Index(args, "--dry-run"); i >= 0 {
		g.Base.DryRun, args = true, slices.Delete(slices.Clone(args), i, i+1)
	}
	giveOptions(t, &g, args...)
	c, err := g.Output(dests, "--to", to, dest.AnyOption)
	if err == nil {
		err = g.Unused()
	}
	if err != nil {
		return nil, err
	}
	return dest.OpenAt(dests, "--to", c)
}

// runText runs a pipeline with text as its input. It returns the messages of the pipeline and its
// error.
func runText(t *testing.T, c *config.Pipeline, text string) (stderr string, err error) {
	t.Helper()
	dir := t.TempDir()
	open := func(name, text string) *os.File {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	messages := open("stderr", "")
	err = run.RunPipe(c, open("stdin", text), messages)
	b, _ := os.ReadFile(messages.Name())
	return string(b), err
}

// inBubble calls f in a synctest bubble, so that timeouts do not depend on the speed of the
// machine.
func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt) // starts a goroutine of the runtime outside the bubble
	signal.Stop(c)
	tail.Events = false
	defer func() { tail.Events = true }()
	bubble.Test(t, f)
}

func TestRunLeavesNothingBehind(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	dir := t.TempDir()
	c := newConfig("file:"+filepath.Join(dir, "a.log"), "file:"+filepath.Join(dir, "b.log"))
	giveOptions(t, &c.Options, "--rotate-size", "4KiB", "--compress", "gzip")
	stderr, err := runText(t, c, strings.Repeat("a line of some length\n", 1000))
	if err != nil || !strings.Contains(stderr, "a.log accepted=1000 delivered=1000; ") {
		t.Error(err, stderr)
	}
}

// If a destination cannot be opened, the destinations opened before it are closed and their locks
// released.
func TestOpenFailureReleasesLocks(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	dir := t.TempDir()
	to := "file:" + filepath.Join(dir, "a.log")
	for range 2 {
		c := newConfig(to, "file:"+filepath.Join(dir, "no", "b.log"))
		giveOptions(t, &c.Options, "--rotate-size", "1MiB")
		_, err := runText(t, c, "x\n")
		if exit.Code(err) != exit.ConfigCode || !strings.Contains(err.Error(), "b.log") {
			t.Fatal(err)
		}
	}
}

// fake is a destination with a separate wire format. It stores the records that it receives, and
// returns the outcome o for each batch.
type fake struct {
	mu   sync.Mutex
	got  []string
	meta []batch.Meta
	o    batch.Outcome
}

func (*fake) Scheme() string             { return "fake" }
func (*fake) Usage() (form, what string) { return "fake:", "nowhere" }
func (f *fake) Open(rest string, _ *dest.Spec) (*dest.Target, error) {
	if rest != "" {
		return nil, errors.New("file: no")
	}
	return &dest.Target{
		Dest: destOf(func(_ context.Context, b *batch.Batch) batch.Outcome {
			f.mu.Lock()
			defer f.mu.Unlock()
			for _, r := range b.All() {
				f.got = append(f.got, string(r.Data))
				f.meta = append(f.meta, r.Meta)
			}
			return f.o
		}),
		NewEncoder: func() dest.EncodeFunc {
			return func(dst []byte, ev *record.Event) ([]byte, batch.Meta, error) {
				if string(ev.Line) == "bad" {
					return nil, batch.Meta{}, errors.New("cannot be encoded")
				}
				return append(append(dst, '<'), append(ev.Line, '>')...), record.Meta(ev), nil
			}
		},
	}, nil
}

func TestOwnWireForm(t *testing.T) {
	f := new(fake)
	deadLetters := filepath.Join(t.TempDir(), "dead")
	path := filepath.Join(t.TempDir(), "a.log")
	c := newConfig("fake:", "file:"+path)
	preset(&c.Options.Base, "dead-letter", deadLetters)
	c.Dests = append(c.Dests, f)
	stderr, err := runText(t, c, "one\n[error] two\nbad\n")
	if err == nil || !strings.Contains(stderr, "; fake accepted=3 delivered=2 dropped=1{encode=1}; file:"+path+" accepted=3 delivered=3") {
		t.Error(err, stderr)
	}
	if b, err := os.ReadFile(deadLetters); err != nil || !strings.Contains(string(b), `"raw":"bad"`) || !strings.Contains(string(b), "cannot be encoded") {
		t.Errorf("dead deadLetters: %s, %v", b, err)
	}
	if strings.Join(f.got, " ") != "<one> <[error] two>" || f.meta[1].Level != slog.LevelError {
		t.Errorf("%q, %+v", f.got, f.meta)
	}
	if b, _ := os.ReadFile(path); string(b) != "one\n[error] two\nbad\n" {
		t.Errorf("the other output received %q", b)
	}
	if _, err := openAs(t, c.Dests, "fake:x"); err == nil || err.Error() != "--to fake:x: no" {
		t.Error(err)
	}
	if _, err := openAs(t, c.Dests, "nope:"); err == nil || !strings.Contains(strings.Join(strings.Fields(err.Error()), " "), "fake: nowhere") {
		t.Error(err)
	}
}

// If a destination refuses records, the program reports them as lost and returns an error. If a
// policy such as drop-newest drops records, the program returns an error only with --fail-on-drop.
func TestRefusedRecordsAreAnError(t *testing.T) {
	for _, failOnDrop := range []bool{false, true} {
		f := &fake{o: never}
		c := newConfig("fake:")
		c.Dests = append(c.Dests, f)
		c.FailOnDrop = failOnDrop
		stderr, err := runText(t, c, "one\ntwo\n")
		want := exit.RuntimeCode
		if failOnDrop {
			want = exit.DropsCode
		}
		if exit.Code(err) != want || !strings.Contains(stderr, "forebay: fake: refuses records permanently: never; dropping them\n") ||
			!strings.Contains(stderr, "dropped=2{poison=2}") || !strings.Contains(stderr, "forebay: 2 records not delivered\n") {
			t.Error(exit.Code(err), stderr)
		}
	}
	c := newConfig("stdout:") // both lines are too long, so stdout receives nothing
	c.MaxRecord.Value = 2
	if stderr, err := runText(t, c, "one\ntwo\n"); err != nil || !strings.Contains(stderr, "2 longer than --max-record (dropped)") {
		t.Error(err, stderr)
	}
	c.Quiet = true
	if stderr, err := runText(t, c, "one\n"); err != nil || stderr != "" {
		t.Errorf("quiet: %v, %q", err, stderr)
	}
}

// A temporary failure of an output is reported at its beginning and at its end.
func TestFailureIsReportedAtBeginAndEnd(t *testing.T) {
	c := newConfig("fake:")
	n := 0
	c.Dests = append(c.Dests, &flaky{fail: func() error {
		if n++; n < 3 {
			return errors.New("busy")
		}
		return nil
	}})
	stderr, err := runText(t, c, "one\n")
	if err != nil || strings.Count(stderr, "fake: busy; retrying; up to 4 × 4 KiB of lines wait in memory\n") != 1 || strings.Count(stderr, "fake: works again\n") != 1 {
		t.Error(err, stderr)
	}
}

// never is the outcome with which a destination refuses every record of a batch.
var never = batch.Outcome{Open: batch.All(), Why: errors.New("never"), Advice: batch.Search}

// destOf returns a destination that passes each batch to the function send.
func destOf(send tool.Sender) deliver.Destination { return deliver.SendFunc(deliver.Traits{}, send) }

type flaky struct {
	fake
	fail func() error
}

func (f *flaky) Open(string, *dest.Spec) (*dest.Target, error) {
	return &dest.Target{Dest: destOf(func(context.Context, *batch.Batch) batch.Outcome {
		if err := f.fail(); err != nil {
			return batch.FailedOutcome(err)
		}
		return batch.Outcome{}
	})}, nil
}

func TestPipeIsDefaultCommand(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "x"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, c := range []struct {
		args, want string
		stdin      *os.File
	}{
		{"", "pipe", file},
		{"", "", null},
		{"--to file:x", "pipe --to file:x", null},
		{"-q", "pipe -q", file},
		{"--help", "--help", file},
		{"--version", "--version", file},
		{"size -q", "size -q", file},
	} {
		if got := strings.Join(withVerb(strings.Fields(c.args), c.stdin), " "); got != c.want {
			t.Errorf("%q becomes %q, want %q", c.args, got, c.want)
		}
	}
}

// If an output cannot be closed, the program reports that, and does not report undelivered records.
func TestEndThatFails(t *testing.T) {
	d, err := deliver.NewOutput(deliver.ToWriter(io.Discard), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for failOnDrop, want := range map[bool]int{false: exit.RuntimeCode, true: exit.DropsCode} {
		p := &run.Pipeline{C: &config.Pipeline{Quiet: true, FailOnDrop: failOnDrop},
			Outs: []*output.Output{{To: "out", Target: &dest.Target{}, Delivery: d, Err: errors.New("close: it does not flush")}}}
		text, err := run.Account{P: p}.Conclude(0, nil, run.ErrDeadline)
		var code *exit.Error
		if !errors.As(err, &code) || code.Code != want || len(text) != 1 || text[0] != "out: close: it does not flush" {
			t.Errorf("%v: %q", err, text)
		}
	}
}
