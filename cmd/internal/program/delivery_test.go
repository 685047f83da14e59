package program

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/config"
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/record"
)

// faulty returns the configuration of a pipeline whose destination fails with the errors that the
// function fail returns. The function adjust changes the options of the destination.
func faulty(fail func() error, adjust func(*dest.Spec)) *config.Pipeline {
	c := newConfig("fake:")
	giveOptions(&testing.T{}, &c.Options, "--retry-age", "24h")
	c.DrainTimeout = setting.Duration(300 * time.Millisecond)
	adjust(&c.Options.Base)
	c.Dests = append(c.Dests, &flaky{fail: fail})
	return c
}

// A run delivers the records in the spool of an earlier run.
func TestNextRunDeliversSpool(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	dir := t.TempDir()
	down := func() error { return errors.New("down") }
	up := func() error { return nil }
	spooled := func(c *dest.Spec) { preset(c, "spool", dir) }
	inBubble(t, func(t *testing.T) {
		stderr, err := runText(t, faulty(down, spooled), "one\ntwo")
		if exit.Code(err) != exit.KeptCode || !strings.Contains(stderr, "pending=2{slab=0 spill=2 inflight=0}") ||
			!strings.Contains(stderr, "fake: 2 records kept for the next run, in "+dir) {
			t.Fatal(err, stderr)
		}
		stderr, err = runText(t, faulty(up, spooled), "three\n")
		if err != nil || !strings.Contains(stderr, "fake: delivering 2 records of an earlier run first\n") ||
			!strings.Contains(stderr, "fake accepted=1 recovered=2 delivered=3\n") {
			t.Fatal(err, stderr)
		}
	})
}

// If records go to the spool after the first failed delivery, one message reports that the
// destination is down, with the reason.
func TestSpillSaysWhy(t *testing.T) {
	for want, err := range map[string]error{
		"fake: is down; lines go to --spool DIR": batch.Fatal(errors.New("wrong password")),
		"fake: refused; retrying\n":              errors.New("refused"),
	} {
		dir := t.TempDir()
		want = strings.Replace(want, "DIR", dir, 1)
		inBubble(t, func(t *testing.T) {
			stderr, rerr := runText(t, faulty(func() error { return err }, func(c *dest.Spec) { preset(c, "spool", dir) }), "one\n")
			if exit.Code(rerr) != exit.KeptCode || !strings.Contains(stderr, want) || strings.Count(stderr, strings.Fields(err.Error())[0]) != 1 {
				t.Errorf("%v, %s, want %s", rerr, stderr, want)
			}
		})
	}
}

// If lines go to the fallback, one message reports it.
func TestFallbackIsReported(t *testing.T) {
	file := filepath.Join(t.TempDir(), "late")
	inBubble(t, func(t *testing.T) {
		stderr, err := runText(t, faulty(func() error { return batch.Fatal(errors.New("wrong password")) }, func(c *dest.Spec) {
			preset(c, "fallback", "file:"+file)
		}), strings.Repeat("one\n", 5000))
		if err != nil || strings.Count(stderr, "fake: is down; lines go to --fallback file:"+file+"\n") != 1 || !strings.Contains(stderr, "handled=5000\n") {
			t.Error(err, stderr)
		}
	})
}

// If a server is down during a run, the next run delivers the records of that run.
func TestSpoolForServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	conf := func() *config.Pipeline {
		c := newConfig("tcp://" + addr)
		preset(&c.Options.Base, "spool", t.TempDir())
		c.DrainTimeout = setting.Duration(300 * time.Millisecond)
		return c
	}
	first := conf()
	inBubble(t, func(t *testing.T) {
		if stderr, err := runText(t, first, "one\ntwo\n"); exit.Code(err) != exit.KeptCode {
			t.Fatal(err, stderr)
		}
	})
	if l, err = net.Listen("tcp", addr); err != nil {
		t.Skip("somebody took the port: ", err)
	}
	defer l.Close()
	got := make(chan string, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			got <- err.Error()
			return
		}
		b, _ := io.ReadAll(conn)
		conn.Close()
		got <- string(b)
	}()
	second := conf()
	preset(&second.Options.Base, "spool", first.Options.Base.Text("spool"))
	second.DrainTimeout = setting.Duration(time.Minute)
	stderr, err := runText(t, second, "three\n")
	if text := <-got; err != nil || text != "one\ntwo\nthree\n" || !strings.Contains(stderr, "accepted=1 recovered=2 delivered=3\n") {
		t.Errorf("%q arrived, %v, %s", text, err, stderr)
	}
}

// Without a spool, undelivered records are lost and counted.
func TestUndeliveredWithoutSpoolIsLost(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	inBubble(t, func(t *testing.T) {
		stderr, err := runText(t, faulty(func() error { return errors.New("down") }, func(*dest.Spec) {}), "one\ntwo\n")
		if exit.Code(err) != exit.RuntimeCode || !strings.Contains(stderr, "dropped=2{shutdown=2}") {
			t.Error(err, stderr)
		}
	})
}

// Permanently refused lines are written to the dead-letter file.
func TestRefusedLinesBecomeDeadLetters(t *testing.T) {
	file := filepath.Join(t.TempDir(), "dead")
	c := faulty(nil, func(c *dest.Spec) { preset(c, "dead-letter", file) })
	c.Dests[len(c.Dests)-1] = &fake{o: never}
	c.DrainTimeout = setting.Duration(time.Minute)
	stderr, err := runText(t, c, "one\ntwo\n")
	if exit.Code(err) != exit.RuntimeCode || !strings.Contains(stderr, "dropped=2{poison=2}") || !strings.Contains(stderr, "refuses records permanently: never; see "+file) {
		t.Error(err, stderr)
	}
	b, _ := os.ReadFile(file)
	for i, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		if !json.Valid([]byte(line)) || !strings.Contains(line, []string{"one", "two"}[i]) {
			t.Errorf("%q", line)
		}
	}
}

// --retry-age is counted from the time at which the line was read, not from the time in the line.
func TestRetryAgeCountsFromReading(t *testing.T) {
	n := 0
	fail := func() error {
		if n++; n < 3 {
			return errors.New("down")
		}
		return nil
	}
	c := faulty(fail, func(c *dest.Spec) {})
	c.DrainTimeout = setting.Duration(time.Minute)
	c.Options.Base.Level().Given = true // the time is parsed only if the level is also parsed
	stderr, err := runText(t, c, "2001-02-03T04:05:06Z ERROR one\n")
	if err != nil || !strings.Contains(stderr, "accepted=1 delivered=1\n") {
		t.Error(err, stderr)
	}
}

// A fallback converts records to the format of its destination, whatever the format of the output.
func TestFallbackTranscodes(t *testing.T) {
	batchOf := func(c batch.Codec, rec string) *batch.Batch {
		b := &batch.Batch{Codec: c}
		b.Append([]byte(rec), 7, batch.Meta{Time: 1})
		return b
	}
	for _, test := range []struct {
		name     string
		ownForm  bool
		codec    batch.Codec
		rec      string
		want     string
		wantType string
	}{
		{"raw to lines", false, nil, "one\n", "one\n", ""},
		{"logfmt to lines", false, encode.Logfmt(nil).Codec(), "msg=one\n", "msg=one\n", encode.Logfmt(nil).Codec().ContentType()},
		{"foreign to lines", false, foreign{encode.Logfmt(nil).Codec()}, "msg=one", `{"msg":"one"}` + "\n", encode.JSON(nil).Codec().ContentType()},
		{"raw to own", true, nil, "one\n", "<one>", ""},
		{"foreign to own", true, foreign{encode.Logfmt(nil).Codec()}, "msg=one", `<{"msg":"one"}>`, ""},
		{"not to be encoded", true, nil, "bad\n", `<"bad">`, ""},
	} {
		var got, gotType string
		target, err := new(fake).Open("", nil)
		if err != nil {
			t.Fatal(err)
		}
		if !test.ownForm {
			target.NewEncoder = nil
		}
		target.Dest = destOf(func(_ context.Context, b *batch.Batch) batch.Outcome {
			got = string(b.AppendTo(nil))
			if b.Codec != nil {
				gotType = b.Codec.ContentType()
			}
			return batch.Outcome{}
		})
		f := dest.NewFallback("", target, record.Parser{})
		f.Lines.Format = record.Text
		b := batchOf(test.codec, test.rec)
		if o := f.Send(t.Context(), b); o.Err() != nil || got != test.want || gotType != test.wantType {
			t.Errorf("%s: %q of type %q, %v", test.name, got, gotType, o)
		}
	}
}

// foreign is a codec for a format that a file does not accept.
type foreign struct{ batch.Codec }

func (foreign) ContentType() string { return "application/foreign" }

func TestSafeNameIsReadableAndUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, to := range []string{"file:a", "file:./a", "file:../../a", "tcp://a:1", "stdout", "", "file:" + strings.Repeat("x", 300), "..", "file:ä"} {
		name := dest.SafeName(to)
		if seen[name] || len(name) > 80 || name[0] == '.' || strings.ContainsAny(name, `/\:`) {
			t.Errorf("%q becomes %q", to, name)
		}
		seen[name] = true
	}
}

// With --fsync, the file and the spool are synced. Without it, neither is synced.
func TestFsyncAppliesToFileAndSpool(t *testing.T) {
	for _, on := range []bool{false, true} {
		c := dest.NewSpec()
		if on {
			if err := c.Set("fsync", "true"); err != nil {
				t.Fatal(err)
			}
		}
		want := map[bool]string{false: "", true: "always"}[on]
		f, err := dest.FileOptions(&c)
		if err != nil || f.Sync != want || c.SpoolOptions().Sync != want {
			t.Errorf("fsync %v: file %q, spool %q; %v", on, f.Sync, c.SpoolOptions().Sync, err)
		}
	}
}
