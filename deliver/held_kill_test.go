//go:build linux || darwin

package deliver

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

// Environment variables of a process that kills itself while streams are held.
const (
	envHeldDir  = "FOREBAY_HELD_DIR"
	envHeldSeed = "FOREBAY_HELD_SEED"
)

// picky is a destination that appends accepted records to a file, which survives the process. It
// does not accept the streams in the map holds. If the field ends is true, it ends the session at a
// record of such a stream. Otherwise it answers with the advice batch.HoldStreams.
type picky struct {
	to    *os.File
	holds map[uint32]bool
	ends  bool
}

func (d *picky) Traits() Traits                 { return Traits{Window: 3} }
func (d *picky) Open(l Life) (Session, error)   { return &pickySession{d, l}, nil }
func (d *picky) refuses(rec *batch.Record) bool { return d.holds[rec.Stream] }

type pickySession struct {
	*picky
	l Life
}

func (s *pickySession) Close() {}

func (s *pickySession) Send(b *batch.Batch) error {
	var open []int
	var text []byte
	for i, rec := range b.All() {
		switch {
		case !s.refuses(&rec):
			text = append(text, rec.Data...)
		case s.ends:
			s.l.End(testkit.ErrDown)
			return nil
		default:
			open = append(open, i)
		}
	}
	if _, err := s.to.Write(text); err != nil {
		panic(err)
	}
	o := batch.Outcome{}
	if open != nil {
		o = batch.Outcome{Open: batch.Of(open...), Why: testkit.ErrDown, Advice: batch.HoldStreams}
	}
	s.l.Answer(b, o)
	return nil
}

func pickyOutput(dir string, d *picky, slabBytes int) (*Output, error) {
	to, err := os.OpenFile(filepath.Join(dir, "arrived"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err == nil {
		err = endLine(to) // a killed process may have written a part of a line
	}
	if err != nil {
		return nil, err
	}
	d.to = to
	return NewOutput(d, &OutputOptions{
		Slab:     slab.Options{SlabBytes: slabBytes, SlabCount: 6, WhenFull: slab.Spill(), FlushInterval: time.Millisecond},
		CrashDir: filepath.Join(dir, "slabs"), SpoolDir: filepath.Join(dir, "spool"), OnError: func(batch.Event) {},
		Deliver: Options{ParkedBytes: 2 << 10, Retry: &RetryOptions{Min: time.Millisecond, Max: 2 * time.Millisecond}},
	})
}

// heldChild writes records until it kills its process. It appends each record to a file after
// WriteRecord has returned.
func heldChild(dir, text string) error {
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return err
	}
	rng := testkit.Rand(seed)
	d := &picky{holds: map[uint32]bool{}, ends: rng.IntN(2) == 0}
	for stream := range uint32(4) {
		d.holds[stream] = rng.IntN(2) == 0
	}
	out, err := pickyOutput(dir, d, 512<<rng.IntN(4))
	if err != nil {
		return err
	}
	accepted, err := os.OpenFile(filepath.Join(dir, "accepted"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	begin := time.Now().UnixNano()
	for n := range 20 + rng.IntN(600) {
		line := fmt.Sprintf("%d %d%06d %s\n", n%4, begin, n, strings.Repeat("x", rng.IntN(60)))
		if err := out.WriteRecord([]byte(line), batch.Meta{Stream: uint32(n % 4)}); err != nil {
			return err
		}
		if _, err := accepted.WriteString(line); err != nil {
			return err
		}
		if rng.IntN(20) == 0 {
			time.Sleep(time.Duration(rng.IntN(5)) * time.Millisecond)
		}
	}
	kill()
	return nil
}

// Processes are killed while streams are held (not accepted for now) or records are suspected of
// ending sessions. Each record whose write had returned arrives. The records of a stream arrive in
// order, except the suspected ones.
func TestKilledWhileHeld(t *testing.T) {
	for walk := range testkit.Walks(t, 8) {
		dir := t.TempDir()
		ends := false
		for process := range uint64(3) {
			seed := walk + process<<32
			ends = ends || testkit.Rand(seed).IntN(2) == 0
			cmd := exec.Command(os.Args[0], "-test.run=^$")
			cmd.Env = append(os.Environ(), envHeldDir+"="+dir, envHeldSeed+"="+fmt.Sprint(seed))
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			stuck := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
			if err := cmd.Wait(); !stuck.Stop() || err == nil || stderr.Len() > 0 {
				t.Fatalf("process %d: %v %s", process, err, stderr.String())
			}
		}
		out, err := pickyOutput(dir, &picky{}, 4096)
		if err != nil {
			t.Fatal(err)
		}
		if err := out.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		a := out.Account()
		if err := errors.Join(a.Check(), out.Close()); err != nil || a.Dropped.Total() > 0 || a.Pending.Total() > 0 {
			t.Errorf("%v: %s", err, a)
		}
		arrived, seen, last := linesOf(t, dir, "arrived"), map[string]bool{}, map[string]string{}
		for _, line := range arrived {
			if seen[line] {
				continue
			}
			seen[line] = true
			if stream := line[:1]; line < last[stream] && !ends {
				t.Errorf("%.30q arrived after %.30q", line, last[stream])
			} else {
				last[stream] = max(line, last[stream])
			}
		}
		accepted := linesOf(t, dir, "accepted")
		lost := 0
		for _, line := range accepted {
			if !seen[line] {
				lost++
			}
		}
		if lost > 0 || len(seen) > len(accepted)+3 { // a record may be kept although the kill came before WriteRecord returned
			t.Fatalf("%d of %d records lost, %d arrived: %s", lost, len(accepted), len(seen), a)
		}
	}
}

// linesOf returns the lines of a file in dir, without their newlines.
func linesOf(t *testing.T, dir, name string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}
