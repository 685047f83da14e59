package top

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/forebay-log/forebay/cmd/internal/control"
	"github.com/forebay-log/forebay/internal/bubble"
)

var update = flag.Bool("update", false, "rewrite testdata/*.golden")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var began = time.Date(2026, 11, 24, 1, 2, 3, 0, time.UTC)

// look returns the state of a program that has been running for the time up.
func look(up time.Duration) *control.State {
	n := uint64(up / time.Millisecond)
	return &control.State{
		Name: "shop", Verb: "pipe", PID: 4711, Version: "v1.2.3", Start: began, Now: began.Add(up),
		Input: control.Input{Records: 12 * n, Bytes: 1200 * n, Filtered: 7, Oversize: 2},
		Outputs: []control.Output{
			{
				To: "file:/var/log/shop/all.log", Accepted: 12 * n, Delivered: 12 * n, Bytes: 1200 * n, Circuit: "closed",
				Slabs: control.Slabs{InUse: 1, Count: 16, Bytes: 64 << 10},
				Waits: control.Waits{Count: n / 100, Seconds: float64(n/100) * 0.02},
			},
			{
				To: "loki://logs.example.com:3100", Accepted: 12 * n, Delivered: 100, Handled: 3, Circuit: "open",
				Slabs: control.Slabs{InUse: 8, Count: 8, Bytes: 64 << 10}, Waits: control.Waits{Now: 1},
				Dropped: map[string]uint64{"full": 1234, "expired": 5}, Pending: control.Pending{Slab: 900, Spill: 100, Inflight: 1},
				Oldest: control.Oldest{Wait: 83.5, Age: 90}, Spool: &control.Spool{Records: 100, Bytes: 12 << 20, MaxBytes: 1 << 30, Parked: 2},
				Trips: 1, Attempts: 40, Retries: 17, FailingSince: began.Add(up - 84*time.Second),
				LastError: "loki: cannot reach http://logs.example.com:3100/loki/api/v1/push: dial tcp 10.1.2.3:3100: connect: connection refused, by a server with a very long name",
			},
			{To: "stdout:", Circuit: "half-open", Slabs: control.Slabs{InUse: 3, Count: 4}},
			{To: "unix:/run/gone", Circuit: "closed", Gone: true, Slabs: control.Slabs{Count: 4}},
		},
	}
}

// The display equals the golden files, on a wide and on a narrow terminal.
func TestDisplayEqualsGoldenFiles(t *testing.T) {
	var h History
	h.Add(look(time.Hour))
	h.Add(look(time.Hour + time.Second))
	h.Add(look(time.Hour + 2*time.Second))
	once := new(History)
	ending := look(time.Hour)
	ending.Ending = true
	once.Add(ending)
	var sb strings.Builder
	for _, c := range []struct {
		h *History
		s Style
	}{{&h, Style{Width: 80}}, {&h, Style{Width: 60}}, {&h, Style{Width: 40, ASCII: true}}, {&h, Style{Width: 120, Color: true}}, {once, Style{Width: 80}}} {
		fmt.Fprintf(&sb, "---- %+v\n%s\n", c.s, strings.Join(c.h.Lines(c.s), "\n"))
	}
	path := filepath.Join("testdata", "lines.golden")
	got := strings.ReplaceAll(sb.String(), "\x1b", "ESC")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// No line is wider than the terminal. Without colors, the display contains no escape sequences.
func FuzzLines(f *testing.F) {
	f.Add("file:/x", "no space left", 40, uint64(7), 1.5)
	f.Add("名前名前名前名前名前名前名前名前名前名前名前名前", "エラー エラー エラー エラー エラー エラー", 41, uint64(1)<<63, -1e300)
	f.Add("", "", 10, uint64(0), 1e300)
	f.Fuzz(func(t *testing.T, to, fault string, width int, n uint64, wait float64) {
		if width < 10 || width > 300 || !utf8.ValidString(to) || !utf8.ValidString(fault) {
			return
		}
		var h History
		for i := range 3 {
			s := look(time.Hour + time.Duration(i)*time.Second)
			s.Name, s.Input.Records, s.Input.Oversize = to, n*uint64(i), n
			for j := range s.Outputs {
				o := &s.Outputs[j]
				o.To = fmt.Sprint(to, j)
				o.LastError, o.Oldest.Wait, o.Waits.Seconds, o.Waits.Count = fault, wait, wait*float64(i), n
				o.Dropped = map[string]uint64{fault: n, to: 1}
				o.Slabs.Count, o.Slabs.InUse = int(n), int(n>>1)
			}
			h.Add(s)
		}
		for _, ascii := range []bool{false, true} {
			for _, line := range h.Lines(Style{Width: width, ASCII: ascii}) {
				if n := columns(line); n > width {
					t.Errorf("%d columns of %d: %q", n, width, line)
				}
			}
		}
	})
}

// A wait that has not ended counts while it lasts, and is not counted again when it ends.
func TestUnfinishedWaitCountsOnce(t *testing.T) {
	var h History
	for i, step := range []struct {
		waits control.Waits
		share float64
	}{
		{control.Waits{}, -1},
		{control.Waits{Count: 1, Seconds: 0.25}, 0.25},
		{control.Waits{Count: 1, Seconds: 0.25, Now: 1}, 0}, // the wait has just begun
		{control.Waits{Count: 1, Seconds: 0.25, Now: 1}, 1},
		{control.Waits{Count: 1, Seconds: 0.25, Now: 1}, 1},
		{control.Waits{Count: 2, Seconds: 2.75}, 0.5}, // 2 s of the 2.5 s were already counted
		{control.Waits{Count: 3, Seconds: 4.75, Now: 1}, 1},
		{control.Waits{Count: 3, Seconds: 4.75}, 0},
	} {
		s := look(time.Duration(i) * time.Second)
		s.Outputs = s.Outputs[:1]
		s.Outputs[0].Waits = step.waits
		h.Add(s)
		if step.share < 0 {
			continue
		}
		shares := h.waits[s.Outputs[0].To].shares
		if got := shares[len(shares)-1]; got != step.share {
			t.Errorf("step %d: %v, want %v", i, got, step.share)
		}
	}
	for range 3 * samples {
		h.Add(h.now)
	}
	next := look(time.Minute)
	h.Add(next)
	if n := len(h.waits[next.Outputs[0].To].shares); n > samples {
		t.Errorf("%d samples", n)
	}
	other := look(time.Minute)
	other.PID++
	if h.Add(other); h.before != nil || len(h.waits) != 0 {
		t.Error("Add keeps the history of another process")
	}
}

func TestCutRemovesMiddle(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  string
	}{
		{"abcdefgh", 8, "abcdefgh"}, {"abcdefgh", 7, "abc~fgh"}, {"abcdefgh", 6, "abc~gh"}, {"abcdefgh", 2, "a~"},
		{"abcdefgh", 1, "~"}, {"abcdefgh", 0, ""}, {"名前名前", 7, "名~名前"}, {"", 3, ""},
	} {
		if got := cut(c.text, c.width); got != c.want {
			t.Errorf("cut(%q, %d) is %q, want %q", c.text, c.width, got, c.want)
		}
	}
}

// A lookFunc returns the state of a program, for Live.
type lookFunc func() (*control.State, error)

// A terminal records what Live draws.
type terminal struct {
	fail error

	mu     sync.Mutex
	frames []string
}

func (m *terminal) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.frames = append(m.frames, string(p))
	return len(p), m.fail
}

func (m *terminal) last() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.frames[len(m.frames)-1]
}

// runLive runs Live in a synctest bubble, and calls the function check while Live runs. at contains
// the lookFunc that Live calls.
func runLive(t *testing.T, at *atomic.Value, check func(m *terminal, keys chan<- []byte, h *History)) (ended bool, err error) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		m, keys, h := new(terminal), make(chan []byte), new(History)
		scr := Screen{W: m, Keys: keys, Size: func() (int, int) { return 60, 9 }}
		done := make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		go func() {
			defer close(done)
			ended, err = Live(ctx, scr, h, time.Second, func(context.Context) (*control.State, error) { return at.Load().(lookFunc)() })
		}()
		synctest.Wait()
		check(m, keys, h)
		<-done
		if m.frames[0] != enter || m.last() != leave {
			t.Errorf("the first output is %q and the last one %q, want the start and end sequences", m.frames[0], m.last())
		}
	})
	return ended, err
}

func TestLiveFollowsKeys(t *testing.T) {
	up := time.Hour
	var at atomic.Value
	well := lookFunc(func() (*control.State, error) { up += time.Second; return look(up), nil })
	at.Store(well)
	ended, err := runLive(t, &at, func(m *terminal, keys chan<- []byte, h *History) {
		press := func(k string) { keys <- []byte(k); synctest.Wait() }
		second := func() { time.Sleep(time.Second); synctest.Wait() }
		want := func(texts ...string) {
			t.Helper()
			for _, text := range texts {
				if !strings.Contains(m.last(), text) {
					t.Errorf("no %q in %q", text, m.last())
				}
			}
		}
		second()
		want("up 1h0m2s", "file:/var/log", "\x1b[H", "q quit  p pause  j k 1-1 of 4", "12 000 lines/s")
		if lines := strings.Count(m.last(), "\r\n") + 1; lines != 9 {
			t.Errorf("%d lines: %q", lines, m.last())
		}
		press("\x1b[B\x1b[B") // press the key down twice
		want("stdout:", "j k 3-3 of 4")
		press("jjjj")
		want("unix:/run/gone", "j k 4-4 of 4")
		press("kx\x1b[A\x1bOA") // press the key up, in its three forms
		want("file:/var/log")
		press("p")
		want("paused")
		second()
		want("up 1h0m2s")
		press(" ")
		second()
		want("up 1h0m4s")
		at.Store(lookFunc(func() (*control.State, error) { return nil, errors.New("it does not answer") }))
		second()
		want("it does not answer", "up 1h0m4s")
		at.Store(well)
		second()
		if strings.Contains(m.last(), "does not answer") {
			t.Errorf("%q", m.last())
		}
		keys <- []byte("\x03")
	})
	if ended || err != nil {
		t.Error(ended, err)
	}
}

// Live ends when the observed program ends, and when its context is canceled.
func TestLiveEndsWithProgram(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		ended bool
	}{"killed": {syscall.ECONNREFUSED, true}, "ended": {os.ErrNotExist, true}, "signal": {errors.New("busy"), false}} {
		t.Run(name, func(t *testing.T) {
			var at atomic.Value
			at.Store(lookFunc(func() (*control.State, error) { return nil, c.err }))
			ended, err := runLive(t, &at, func(_ *terminal, keys chan<- []byte, _ *History) { close(keys) })
			if ended != c.ended || err != nil {
				t.Error(ended, err)
			}
		})
	}
	gone := errors.New("gone")
	m := &terminal{fail: gone}
	_, err := Live(t.Context(), Screen{W: m}, new(History), time.Second, func(context.Context) (*control.State, error) { return look(1), nil })
	if err != gone || !slices.Equal(m.frames, []string{enter}) {
		t.Errorf("%v, %q", err, m.frames)
	}
}
