package fluent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/closetime"
	"github.com/forebay-log/forebay/internal/diskqueue"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
	"github.com/forebay-log/forebay/spool"
)

// downConfig returns a Config of a server that refuses connections. The circuit breaker opens
// after the first attempt.
func downConfig() testConfig {
	return testConfig{
		Config: Config{
			Dial:         func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("connection refused") },
			ReconnectMin: time.Millisecond,
			ReconnectMax: 2 * time.Millisecond,
		},
		FlushInterval: time.Millisecond,
		Breaker:       &deliver.BreakerOptions{Failures: 1, OpenMin: time.Minute, OpenMax: time.Minute},
		Retry:         &deliver.RetryOptions{Min: time.Millisecond, Max: 5 * time.Millisecond},
	}
}

// listenAndAck starts a server that acknowledges all records, and returns its address.
func listenAndAck(t *testing.T, r *received) string {
	return listen(t, &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { r.ackAll(c) }})
}

// Records that were posted while the server was down are delivered by the next Logger, before newer
// records.
func TestSpooledRecordsAreDeliveredFirst(t *testing.T) {
	dir := t.TempDir()
	c := downConfig()
	c.SpoolDir = filepath.Join(dir, "spool")
	l := newTestLogger(t, c)
	if _, err := c.logger(); !errors.Is(err, spool.ErrLocked) {
		t.Errorf("a second Logger with the spool of the first: %v", err)
	}
	for i := range 1000 {
		if err := l.Post([]string{"spool.a", "spool.b"}[i%2], map[string]any{"n": i}); err != nil {
			t.Fatal(err)
		}
	}
	rep, err := l.Close(context.Background())
	if err != nil || rep.Pending.Spill != 1000 || rep.Check() != nil {
		t.Fatalf("%v: %s", err, rep.Account)
	}
	if s := l.Stats().Spool; s.Records != 1000 || s.Appended != 1000 {
		t.Errorf("%+v", s)
	}

	// The spool contains the tags, because other processes have other stream ids.
	defs := definitions{}
	for e, err := range diskqueue.Scan(c.SpoolDir, &spool.Options{Streams: defs}) {
		if err != nil || e.Batch == nil {
			t.Fatalf("%v", err)
		}
	}
	if !defs["spool.a"] || !defs["spool.b"] || len(defs) != 2 {
		t.Errorf("%v", defs)
	}

	var r received
	l = newTestLogger(t, testConfig{Config: Config{Servers: []string{listenAndAck(t, &r)}}, SpoolDir: c.SpoolDir})
	for i := range 10 {
		l.Post("spool.a", map[string]any{"n": 2000 + 2*i})
	}
	rep = closeLogger(t, l)
	if rep.Recovered != 1000 || rep.Delivered != 1010 {
		t.Errorf("%s", rep.Account)
	}
	for i, tag := range []string{"spool.a", "spool.b"} {
		got := r.get(tag)
		if want := []int{510, 500}[i]; len(got) != want || got[0] != i || !slices.IsSorted(got) {
			t.Errorf("%s: %d records, from %v on", tag, len(got), got[:min(len(got), 3)])
		}
	}
}

// definitions is a dictionary that stores the stream definitions of a spool.
type definitions map[string]bool

func (d definitions) AppendStream(dst []byte, _ uint32) ([]byte, bool) { return dst, false }
func (d definitions) Stream(def []byte) uint32 {
	d[string(def)] = true
	return uint32(len(d))
}

// If the context of Close has already ended, Close sends nothing and writes the records to the
// spool.
func TestCloseWithEndedContextSpools(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := downConfig()
		c.SpoolDir = t.TempDir()
		l := newTestLogger(t, c)
		for i := range 100 {
			l.Post("spool.c", map[string]any{"n": i})
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		start := time.Now()
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { l.Close(ctx) })
		}
		wg.Wait()
		rep, _ := l.Close(context.Background())
		if rep.Pending.Spill != 100 || rep.Check() != nil {
			t.Errorf("%s", rep.Account)
		}
		if took := time.Since(start); took > 5*closetime.Disk {
			t.Errorf("took %v", took)
		}
	})
}

// The fallback file and the dead-letter file receive records as JSON. A Logger with an invalid
// option does not leave the spool locked.
func TestFallbackAndDeadLetterFiles(t *testing.T) {
	dir := t.TempDir()
	c := downConfig()
	c.FallbackFile, c.Name = filepath.Join(dir, "fallback.jsonl"), "files"
	l := newTestLogger(t, c)
	l.PostWithTime("files.tag", time.Unix(1, 0), map[string]any{"n": 1})
	rep := closeLogger(t, l)
	text, err := os.ReadFile(c.FallbackFile)
	if err != nil || rep.Handled != 1 || !equalJSON(string(text), `{"tag":"files.tag","time":"1970-01-01T00:00:01Z","record":{"n":1}}`) {
		t.Errorf("%v, %s: %s", err, rep.Account, text)
	}
	if st, err := os.Stat(c.FallbackFile); err != nil || runtime.GOOS != "windows" && st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}

	// The server closes the connection when it receives a record that contains the word poison.
	deadLetters := filepath.Join(dir, "dead-letters.jsonl")
	bubble.Test(t, func(t *testing.T) {
		f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
			for {
				m, err := c.Next()
				if err != nil || bytes.Contains(bytes.Join(m.Entries, nil), []byte("poison")) {
					return
				}
				c.Ack(m.Chunk)
			}
		}}
		defer f.Close()
		l := newTestLogger(t, testConfig{Config: Config{Dial: f.Dial}, DeadLetterFile: deadLetters, OnError: func(batch.Event) {}})
		for i := range 10 {
			v := map[string]any{"n": i}
			if i == 5 {
				v = map[string]any{"poison": i}
			}
			l.Post("files.tag", v)
		}
		time.Sleep(10 * time.Minute)
		rep = closeLogger(t, l)
	})
	text, err = os.ReadFile(deadLetters)
	if err != nil || rep.Delivered != 9 || rep.Dropped[batch.Poison] != 1 || !strings.Contains(string(text), `"record":{"poison":5}`) || !strings.Contains(string(text), `"tag":"files.tag"`) {
		t.Errorf("%v, %s: %s", err, rep.Account, text)
	}
	for _, c := range []testConfig{
		{FallbackFile: dir}, {DeadLetterFile: dir}, {SpoolDir: c.FallbackFile}, {SpoolDir: "x", SpoolSync: "maybe"},
		{FallbackFile: "x", ErrorHandler: deliver.JSONLines(os.Stdout)},
		{SpoolDir: filepath.Join(dir, "s"), FallbackFile: filepath.Join(dir, "f"), DeadLetterFile: dir}, // the failed call has unlocked the spool
		{SpoolDir: filepath.Join(dir, "s"), FallbackFile: filepath.Join(dir, "f"), DeadLetterFile: dir},
	} {
		if _, err := c.logger(); err == nil || errors.Is(err, spool.ErrLocked) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// The age of a record, after which it is dropped, counts from the call of Post and not from the
// time of the event.
func TestRetryAgeCountsFromPost(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var r received
		f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { r.ackAll(c) }}
		refused := 0
		l := newTestLogger(t, testConfig{
			Config: Config{
				Dial: func(ctx context.Context, n, a string) (net.Conn, error) {
					if refused++; refused < 3 {
						return nil, errors.New("connection refused")
					}
					return f.Dial(ctx, n, a)
				},
			},
			Retry: &deliver.RetryOptions{MaxAge: time.Hour},
		})
		time.Sleep(5 * time.Hour) // MaxAge does not apply to times before the start of the process
		for i, at := range []time.Time{time.Unix(1, 0), time.Now().Add(-2 * time.Hour), time.Now()} {
			if err := l.PostWithTime("old", at, map[string]any{"n": i}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		rep := closeLogger(t, l)
		if got := r.get("old"); !slices.Equal(got, seq(0, 3)) {
			t.Errorf("%v, %s", got, rep.Account)
		}
		f.Close()
	})
}

// If an error handler hangs, Close writes the records passed to that handler to the spool. It does
// so within the time reserved for the spool.
func TestCloseSpoolsDespiteHangingHandler(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := downConfig()
		c.SpoolDir, c.BufferBytes = t.TempDir(), 1<<20
		hang, called := make(chan struct{}), make(chan struct{})
		var once sync.Once
		c.ErrorHandler = deliver.ErrorHandlerFunc(func(err error, _ *batch.Batch) batch.Outcome {
			once.Do(func() { close(called) })
			<-hang
			return batch.FailedOutcome(err)
		})
		l := newTestLogger(t, c)
		posted := uint64(0)
		text := strings.Repeat("x", 1000)
		for i := range 500 {
			if l.Post("hang", map[string]any{"n": i, "text": text}) == nil {
				posted++
			}
		}
		<-called
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		start := time.Now()
		rep, _ := l.Close(ctx)
		if took := time.Since(start); took > 5*closetime.Disk {
			t.Errorf("took %v", took)
		}
		if rep.Pending.Spill != posted || rep.Check() != nil {
			t.Errorf("%s", rep.Account)
		}
		close(hang)
	})
}

const (
	envKillDir = "FOREBAY_FLUENT_KILL_DIR"
	envKillHow = "FOREBAY_FLUENT_KILL_HOW"
)

// If a process is killed, the records for which Post had returned are not lost. The next process
// delivers these records with their tags, or writes them as JSON.
func TestKilledProcessLosesNoPostedRecord(t *testing.T) {
	if dir := os.Getenv(envKillDir); dir != "" {
		postUntilKilled(dir)
		return
	}
	// Because of this tag, the ids of streams in this process differ from those in the child.
	if _, err := new(valuer).streamOf("kill.parent"); err != nil {
		t.Fatal(err)
	}
	for _, how := range []string{"to the server", "as JSON", "unacknowledged"} {
		t.Run(how, func(t *testing.T) {
			dir := t.TempDir()
			cmd := exec.Command(os.Args[0], "-test.run=^TestKilledProcessLosesNoPostedRecord$")
			cmd.Env = append(os.Environ(), envKillDir+"="+dir, envKillHow+"="+how)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			posted := 0
			for sc := bufio.NewScanner(out); sc.Scan(); {
				if n, err := fmt.Sscanf(sc.Text(), "posted %d", &posted); n != 1 {
					t.Fatalf("%q: %v", sc.Text(), err)
				}
				if posted == 300 {
					cmd.Process.Kill()
				}
			}
			cmd.Wait()
			if posted < 300 {
				t.Skipf("SKIPPED: crash-safe buffers are not available here (%d records)", posted)
			}
			if how == "as JSON" {
				c := downConfig()
				c.CrashDir, c.FallbackFile = dir, filepath.Join(dir, "fallback.jsonl")
				rep := closeLogger(t, newTestLogger(t, c))
				text, err := os.ReadFile(c.FallbackFile)
				if err != nil || rep.Recovered < uint64(posted) || rep.Handled != rep.Recovered {
					t.Fatalf("%v: %s", err, rep.Account)
				}
				for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
					var v struct {
						Tag    string
						Record struct{ N int }
					}
					if err := json.Unmarshal([]byte(line), &v); err != nil || v.Record.N != i+1 || v.Tag != fmt.Sprint("kill.", (i+1)%3) {
						t.Fatalf("line %d: %s", i, line)
					}
				}
				return
			}
			var r received
			rep := closeLogger(t, newTestLogger(t, testConfig{Config: Config{Servers: []string{listenAndAck(t, &r)}}, CrashDir: dir}))
			if rep.Recovered < uint64(posted) || rep.Delivered != rep.Recovered {
				t.Errorf("%s", rep.Account)
			}
			for k := range 3 {
				got := r.get(fmt.Sprint("kill.", k))
				if len(got) < 100 {
					t.Fatalf("tag %d: %d records", k, len(got))
				}
				for i, n := range got {
					if want := 3*i + (k+2)%3 + 1; n != want {
						t.Fatalf("tag %d: record %d is %d, not %d", k, i, n, want)
					}
				}
			}
		})
	}
}

// postUntilKilled is the body of the child process. It posts records until the parent kills the
// process.
func postUntilKilled(dir string) {
	c := downConfig()
	c.CrashDir, c.FlushInterval = dir, time.Hour
	reading := make(chan struct{})
	if os.Getenv(envKillHow) == "unacknowledged" {
		c.FlushInterval = time.Millisecond
		c.Dial = (&testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
			c.Next()
			close(reading)
			c.Next()
		}}).Dial
	} else {
		close(reading)
	}
	c.OnError = func(e batch.Event) { fmt.Fprintln(os.Stderr, e.Op, e.Err) }
	l, err := c.logger()
	if err != nil || l.Stats().Slab.CrashUnsafe != "" {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(0)
	}
	for i := 1; ; i++ {
		if err := l.Post(fmt.Sprint("kill.", i%3), map[string]any{"n": i}); err != nil {
			select {}
		}
		if i == 200 { // some records are in flight
			<-reading
		}
		fmt.Println("posted", i)
	}
}

// Without a spool, records that Close could not deliver remain in CrashDir for the next Logger.
func TestCrashDirKeepsUndeliveredRecords(t *testing.T) {
	c := downConfig()
	c.CrashDir = t.TempDir()
	l := newTestLogger(t, c)
	if why := l.Stats().Slab.CrashUnsafe; why != "" {
		t.Skip("SKIPPED: ", why)
	}
	for i := range 100 {
		l.Post("crash.dir", map[string]any{"n": i})
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	rep, err := l.Close(ctx)
	if err != nil || rep.Kept() != 100 || rep.Check() != nil {
		t.Errorf("%v: %s", err, rep.Account)
	}
	var r received
	rep = closeLogger(t, newTestLogger(t, testConfig{Config: Config{Servers: []string{listenAndAck(t, &r)}}, CrashDir: c.CrashDir}))
	if !slices.Equal(r.get("crash.dir"), seq(0, 100)) {
		t.Errorf("%s: %v", rep.Account, r.get("crash.dir"))
	}
}

func TestCodecForKnownContentTypes(t *testing.T) {
	for form, want := range map[string]string{entryType: entryType, "application/json": "application/x-ndjson", "application/logfmt": "application/logfmt"} {
		if c := codecFor(form, 0); c == nil || c.ContentType() != want {
			t.Errorf("%s: %v", form, c)
		}
	}
	if c := codecFor("image/png", 0); c != nil {
		t.Errorf("%v", c)
	}
}

// In this test, the server stalls while the circuit breaker is closed. With the policy spill, the
// oldest records are moved to the spool, so no record is lost and no caller waits.
func TestWhenFullSpillLosesNothing(t *testing.T) {
	t.Run("memory", func(t *testing.T) { testWhenFullSpill(t, "") })
	t.Run("crash-safe", func(t *testing.T) { testWhenFullSpill(t, t.TempDir()) })
}

func testWhenFullSpill(t *testing.T, crash string) {
	dir := t.TempDir()
	const n = 5000
	bubble.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		stalled := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { <-stop }}
		defer stalled.Close()
		defer close(stop)
		l := newTestLogger(t, testConfig{Config: Config{Dial: stalled.Dial}, SpoolDir: dir, CrashDir: crash, WhenFull: "spill", BufferBytes: 64 << 10, SlabBytes: 16 << 10})
		text := strings.Repeat("x", 100)
		for i := range n {
			if err := l.Post("full.spill", map[string]any{"n": i}); err != nil {
				t.Fatal(err)
			}
			l.Post("full.other", text)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		rep, err := l.Close(ctx)
		if rep.Dropped.Total() > 0 || rep.Pending.Spill != 2*n || rep.Check() != nil {
			t.Fatalf("%v: %s", err, rep.Account)
		}
	})
	var r received
	rep := closeLogger(t, newTestLogger(t, testConfig{Config: Config{Servers: []string{listenAndAck(t, &r)}}, SpoolDir: dir}))
	if !slices.Equal(r.get("full.spill"), seq(0, n)) {
		t.Errorf("%s: %d records", rep.Account, len(r.get("full.spill")))
	}
	if _, err := (testConfig{WhenFull: "spill"}).logger(); err == nil {
		t.Error("the policy spill was accepted without a spool")
	}
}

// Records that are larger than a slab may use all of BufferBytes.
func TestLargeRecordsMayUseTheWholeBuffer(t *testing.T) {
	l := newTestLogger(t, testConfig{Config: Config{Servers: []string{"127.0.0.1:1"}}, BufferBytes: 16 << 20})
	for i := range 150 { // 100 kB each
		if err := l.Post("t", strings.Repeat("x", 100_000)); err != nil {
			t.Fatalf("record %d: %v; %v", i, err, l.Stats())
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, _ = l.Close(ctx)
}

// If the buffer is full, Post waits exactly as long as the option WhenFull permits.
func TestPostWaitsOnlyAsLongAsWhenFullAllows(t *testing.T) {
	for policy, want := range map[string]time.Duration{"": 250 * time.Millisecond, "drop-newest": 0, "drop-oldest": 0, "block-for=100ms": 100 * time.Millisecond} {
		bubble.Test(t, func(t *testing.T) {
			stop := make(chan struct{})
			f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { <-stop }}
			l := newTestLogger(t, testConfig{Config: Config{Dial: f.Dial}, WhenFull: policy, BufferBytes: 4 << 10, SlabBytes: 1 << 10})
			longest, dropped := time.Duration(0), 0
			for range 500 {
				start := time.Now()
				if err := l.Post("t", "some text of some length"); errors.Is(err, slab.ErrDropped) {
					dropped++
				} else if err != nil {
					t.Error(err)
				}
				longest = max(longest, time.Since(start))
			}
			if longest != want || dropped == 0 && policy != "drop-oldest" || l.Account().Dropped[batch.Full] == 0 {
				t.Errorf("%q: %v, %d dropped, %s", policy, longest, dropped, l.Account())
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			l.Close(ctx)
			close(stop)
			f.Close()
		})
	}
}
