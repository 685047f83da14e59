package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/input"
	"github.com/forebay-log/forebay/cmd/internal/intake"
	"github.com/forebay-log/forebay/cmd/internal/join"
	"github.com/forebay-log/forebay/cmd/internal/readahead"
	"github.com/forebay-log/forebay/cmd/internal/run"
	"github.com/forebay-log/forebay/cmd/internal/tail"
	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/internal/testkit"
)

// A joinTest passes lines to an intake of standard input, and records what the output receives.
type joinTest struct {
	take *intake.Intake
	got  []string
}

// newJoinTest returns a joinTest for records of up to maxRecord bytes.
func newJoinTest(t *testing.T, maxRecord int) *joinTest {
	t.Helper()
	dir := t.TempDir()
	empty, err := os.Create(filepath.Join(dir, "empty"))
	if err != nil {
		t.Fatal(err)
	}
	c := newConfig("file:" + filepath.Join(dir, "out"))
	c.MaxRecord.Value = int64(maxRecord)
	if err := c.Settle(); err != nil {
		t.Fatal(err)
	}
	c.Inputs = []*input.Config{{Kind: input.Stdin{F: empty}}}
	p := run.New(c, io.Discard)
	if err := errors.Join(p.Open(empty), p.OpenInputs()); err != nil {
		t.Fatal(err)
	}
	jt := &joinTest{take: p.Inlets[0].Intakes[0]}
	jt.take.Parse = true
	jt.take.Outs[0].Encode = func(_ []byte, ev *record.Event) ([]byte, batch.Meta, error) {
		jt.got = append(jt.got, string(ev.Raw))
		return ev.Raw, batch.Meta{}, nil
	}
	t.Cleanup(func() {
		p.Shutdown(context.Background())
		p.CloseInputs()
		empty.Close()
	})
	return jt
}

// chunks is a reader that returns random parts of its text.
type chunks struct {
	rng    *rand.Rand
	text   string
	before func() // called before each Read
}

func (c *chunks) Read(p []byte) (int, error) {
	if c.before != nil {
		c.before()
	}
	if c.text == "" {
		return 0, io.EOF
	}
	n := copy(p, c.text[:1+c.rng.IntN(min(len(c.text), 1+c.rng.IntN(300)))])
	c.text = c.text[n:]
	return n, nil
}

var joinLines = []string{
	"plain %d", "", "panic: %d", "goroutine %d [running]:", "main.f(%d)", "\t/x.go:%d", "created by %d", "[signal %d",
	"a.BException: %d", "\tat x.y(%d)", "Caused by: a.CError: %d", "\t... %d more", "  indented %d",
	"Traceback (most recent call last):", "ValueError: %d", "During handling of the above exception, %d", "2026-11-23 %d",
}

// someLines returns random lines, as programs write them. Some lines belong to one record. The
// lines may have the format of a container runtime.
func someLines(rng *rand.Rand, long bool) string {
	var b strings.Builder
	wrap := rng.IntN(3)
	for i := range rng.IntN(150) {
		text := joinLines[rng.IntN(len(joinLines))]
		if strings.Contains(text, "%d") {
			text = fmt.Sprintf(text, i+1_000_000)
		}
		if long && rng.IntN(20) == 0 {
			text += strings.Repeat("x", rng.IntN(500))
		}
		stream := []string{"stdout", "stderr"}[rng.IntN(2)]
		switch part := rng.IntN(3) == 0; {
		case wrap == 1 && part:
			text = "2026-11-23T10:00:00Z " + stream + " P " + text
		case wrap == 1:
			text = "2026-11-23T10:00:00Z " + stream + " F " + text
		case wrap == 2:
			end := `\n`
			if part {
				end = ""
			}
			text = fmt.Sprintf(`{"log":"%s%s","stream":"%s","time":"2026-11-23T10:00:00Z"}`, strings.ReplaceAll(text, "\t", `\t`), end, stream)
		}
		b.WriteString(text + []string{"\n", "\n", "\r\n"}[rng.IntN(3)])
	}
	if s := b.String(); rng.IntN(3) == 0 {
		return strings.TrimRight(s, "\r\n")
	}
	return b.String()
}

func someRules(t *testing.T, rng *rand.Rand) *join.Rules {
	all := [][]string{{"auto"}, {"cri", "java"}, {"docker"}, {"go", "python"}, {`^\d{4}-`}, {"cri", "docker", "^plain"}}
	rules, err := join.Parse(all[rng.IntN(len(all))])
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// A tailSink records the lines of a tail.Tailer.
type tailSink struct {
	got  []string
	long uint64
}

func (*tailSink) Begin() {}
func (*tailSink) End()   {}

func (s *tailSink) Put(l *tail.Line) error {
	if l.TooLong > 0 {
		s.long++
	} else {
		s.got = append(s.got, string(l.Text))
	}
	return nil
}

func (*tailSink) Commit(context.Context) error { return nil }

// The program joins lines of standard input, read in random parts, to the same records as forebay
// tail joins lines of a file.
func TestJoinedAsByTail(t *testing.T) {
	seeds := testkit.Rand(testkit.Seed(t))
	for range testkit.Rounds(t, 60, 2000) {
		rng := testkit.Rand(seeds.Uint64())
		text, rules, most := someLines(rng, true), someRules(t, rng), []int{100, 300, 1 << 20}[rng.IntN(3)]
		path := filepath.Join(t.TempDir(), "x.log")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		want := &tailSink{}
		tailer, err := tail.New(tail.Options{Patterns: []string{path}, Once: true, Join: rules, MaxRecord: most, JoinWait: time.Hour}, want)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(tailer.Run(), tailer.Finish(true)); err != nil {
			t.Fatal(err)
		}
		jt := newJoinTest(t, most)
		if err := jt.take.Consume(&chunks{rng: rng, text: text}, nil, intake.Text{Join: rules}, nil, false); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(jt.got, want.got) || jt.take.In.Oversize.Load() != want.long {
			t.Fatalf("of %q\nat most %d: got\n%q and %d too long, tail has\n%q and %d", text, most, jt.got, jt.take.In.Oversize.Load(), want.got, want.long)
		}
		if n := jt.take.In.Records.Load(); n != uint64(len(want.got))+want.long {
			t.Fatalf("%d records are counted, want %d and %d too long", n, len(want.got), want.long)
		}
	}
}

// If the program is killed while it joins lines, the next run delivers these lines. No line is
// repeated, unless the text mixes lines of stdout and stderr of a container.
func TestHeldLinesSurviveAKill(t *testing.T) {
	seeds := testkit.Rand(testkit.Seed(t))
	number := regexp.MustCompile(`1\d{6}`)
	for range testkit.Rounds(t, 40, 1000) {
		rng := testkit.Rand(seeds.Uint64())
		text, rules := someLines(rng, false), someRules(t, rng)
		const most = 2000
		plain := newJoinTest(t, most)
		if err := plain.take.Consume(strings.NewReader(text), nil, intake.Text{Join: rules}, nil, false); err != nil {
			t.Fatal(err)
		}
		dir, after := t.TempDir(), t.TempDir()
		first := newJoinTest(t, most)
		names := []string{first.take.Outs[0].Dir}
		kept, err := readahead.Create(dir, readahead.Options{Outputs: names, Bytes: intake.BytesToKeep(most, rules)})
		if err != nil {
			t.Fatal(err)
		}
		src := &chunks{rng: rng, text: text}
		kill, had, rest := rng.IntN(1+len(text)/100), -1, ""
		src.before = func() { // at the simulated kill, copies the read-ahead file in its current state
			if kill--; kill >= 0 || had >= 0 {
				return
			}
			had, rest = len(first.got), src.text
			image, err := os.ReadFile(filepath.Join(dir, kept.Name()))
			if err == nil {
				err = os.WriteFile(filepath.Join(after, kept.Name()), image, 0o600)
			}
			if err != nil {
				t.Error(err)
			}
		}
		kept.From(src, nil)
		if err := first.take.Consume(kept, kept, intake.Text{Join: rules}, nil, false); err != nil || kept.Broken() != nil {
			t.Fatal(err, kept.Broken())
		}
		kept.Close()
		if !slices.Equal(first.got, plain.got) {
			t.Fatalf("of %q: with --crash-safe\n%q, without\n%q", text, first.got, plain.got)
		}
		if had < 0 {
			continue // the input ended before the simulated kill
		}
		second := newJoinTest(t, most)
		files, damaged := readahead.Adopt(after, []string{second.take.Outs[0].Dir, names[0]})
		if len(damaged) > 0 || len(files) > 1 {
			t.Fatal(damaged, files)
		}
		if len(files) == 0 {
			err = second.take.Consume(strings.NewReader(rest), nil, intake.Text{Join: rules}, nil, false)
		} else {
			second.take.Outs[0].Dir = names[0]
			files[0].From(&chunks{rng: rng, text: rest}, nil)
			err = second.take.Consume(files[0], files[0], intake.Text{Join: rules}, nil, false)
			files[0].Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		both := append(slices.Clone(first.got[:had]), second.got...)
		if !strings.Contains(text, " stderr ") && !strings.Contains(text, `"stderr"`) && !slices.Equal(both, plain.got) {
			t.Fatalf("of %q: killed behind %q, then\n%q, want\n%q", text, first.got[:had], second.got, plain.got)
		}
		for _, n := range number.FindAllString(text, -1) {
			if !strings.Contains(strings.Join(both, ""), n) {
				t.Fatalf("of %q: killed behind\n%q, then\n%q: %s is lost", text, first.got[:had], second.got, n)
			}
		}
	}
}

// While a line waits for the rest of its record, it stays in the read-ahead file, however much
// input follows.
func TestHeldLineAndAFlood(t *testing.T) {
	rules, err := join.Parse([]string{"cri"})
	if err != nil {
		t.Fatal(err)
	}
	for _, flood := range []string{
		strings.Repeat("2026-11-23T10:00:00Z stderr F one\n", 30_000),
		strings.Repeat("x", 1<<20) + "\n",
	} {
		jt := newJoinTest(t, 1000)
		kept, err := readahead.Create(t.TempDir(), readahead.Options{Outputs: []string{jt.take.Outs[0].Dir}, Bytes: intake.BytesToKeep(1000, rules)})
		if err != nil {
			t.Fatal(err)
		}
		kept.From(strings.NewReader("2026-11-23T10:00:00Z stdout P part\n"+flood), nil)
		if err := jt.take.Consume(kept, kept, intake.Text{Join: rules}, nil, false); err != nil || kept.Broken() != nil {
			t.Error(err, kept.Broken())
		}
		kept.Close()
		if !slices.Contains(jt.got, "part\n") || len(jt.got) > 1 && jt.got[len(jt.got)-1] == "part\n" {
			t.Errorf("%d records, the last one %q", len(jt.got), jt.got[len(jt.got)-1])
		}
	}
}

// A slowInput is an input that returns each text when the test sends it. The input ends when the
// test closes the channel texts.
type slowInput struct {
	texts chan string
	rest  string
}

func (s *slowInput) Read(p []byte) (int, error) {
	if s.rest == "" {
		text, ok := <-s.texts
		if !ok {
			return 0, io.EOF
		}
		s.rest = text
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

func (s *slowInput) wait(d time.Duration) bool {
	if s.rest != "" {
		return true
	}
	select {
	case s.rest = <-s.texts: // "" means the end
		return true
	case <-time.After(d):
		return false
	}
}

// A record is delivered one second after its last line. If lines continue to arrive, it is
// delivered ten seconds after its first line.
func TestHeldForASecond(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		rules, err := join.Parse([]string{"java"})
		if err != nil {
			t.Fatal(err)
		}
		jt := newJoinTest(t, 1<<20)
		src := &slowInput{texts: make(chan string)}
		done := make(chan error)
		go func() { done <- jt.take.Consume(src, nil, intake.Text{Join: rules}, src.wait, false) }()
		after := func(d time.Duration, want ...string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if !slices.Equal(jt.got, want) {
				t.Fatalf("got %q, want %q", jt.got, want)
			}
			if !jt.take.Mu.TryLock() {
				t.Fatal("the intake is held while nothing comes")
			}
			jt.take.Mu.Unlock()
		}
		src.texts <- "one\na.BException\n"
		after(999*time.Millisecond, "one\n")
		src.texts <- "\tat x\n\tat "
		after(999*time.Millisecond, "one\n")
		after(time.Millisecond, "one\n", "a.BException\n\tat x\n")
		src.texts <- "y\n"
		after(0, "one\n", "a.BException\n\tat x\n", "\tat y\n")

		jt.got = nil
		long := "a.CException\n"
		src.texts <- long
		for range 19 {
			after(time.Second / 2)
			src.texts <- "\tat z\n"
			long += "\tat z\n"
		}
		after(499 * time.Millisecond)
		after(time.Millisecond, long)

		src.texts <- "a.DException\n"
		close(src.texts)
		if err := <-done; err != nil {
			t.Error(err)
		}
		after(0, long, "a.DException\n")
	})
}
