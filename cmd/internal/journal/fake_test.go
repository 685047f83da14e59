package journal

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// If the environment variable FAKE_JOURNAL is set, TestMain runs a fake of journalctl instead of
// the tests.
func TestMain(m *testing.M) {
	if dir := os.Getenv("FAKE_JOURNAL"); dir != "" {
		fake(dir, os.Args[1:])
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// fake behaves like journalctl: it writes the entries in dir/entries and waits for more. If
// dir/fails exists, fake writes its content to standard error and fails. The environment variable
// FAKE_DEATH is a seed: fake then kills itself after a random number of bytes, and counts its runs
// in dir/runs.
func fake(dir string, args []string) {
	flag := func(name string) string {
		for _, a := range args {
			if v, ok := strings.CutPrefix(a, "--"+name+"="); ok {
				return v
			}
		}
		return ""
	}
	if text, err := os.ReadFile(filepath.Join(dir, "fails")); err == nil {
		os.Stderr.Write(text)
		os.Exit(1)
	}
	left := -1 // number of bytes to write before the kill; -1: no kill
	if seed, err := strconv.ParseUint(os.Getenv("FAKE_DEATH"), 10, 64); err == nil {
		runs := filepath.Join(dir, "runs")
		count, _ := os.ReadFile(runs)
		os.WriteFile(runs, append(count, 'x'), 0o600)
		left = rand.New(rand.NewPCG(seed, uint64(len(count)))).IntN(30_000)
	}
	out := os.Stdout
	emit := func(line []byte) {
		if left >= 0 && len(line) > left {
			out.Write(line[:left])
			self, _ := os.FindProcess(os.Getpid())
			self.Kill()
			select {}
		}
		out.Write(line)
		left -= len(line)
	}
	cursor, since := flag("cursor"), strings.TrimPrefix(flag("since"), "@")
	from, _ := strconv.ParseInt(since, 10, 64)
	fmt.Fprintln(out, "-- Journal begins at Tue 2026-11-24 02:33:30 UTC. --")
	f, err := os.Open(filepath.Join(dir, "entries"))
	if err != nil {
		os.Exit(2)
	}
	r := bufio.NewReader(f)
	var part []byte
	for {
		line, err := r.ReadBytes('\n')
		part = append(part, line...)
		if err == io.EOF {
			time.Sleep(2 * time.Millisecond) // wait for new entries
			continue
		}
		line, part = part, nil
		n, ok := number(string(line))
		if !ok {
			emit(line)
			continue
		}
		if want, ok := number(`{"__CURSOR":"` + cursor + `"`); cursor != "" && ok && n < want {
			continue
		}
		if at := (base + int64(n)*1000) / 1e6; cursor == "" && at < from {
			continue
		}
		emit(line)
	}
}

const base = 1_700_000_000_500_000 // time of entry 0, in microseconds since 1970

// number returns the number of an entry, which is part of its cursor.
func number(line string) (n int, ok bool) {
	_, rest, ok := strings.Cut(line, `"__CURSOR":"s=fake;i=`)
	if !ok {
		return 0, false
	}
	hex, _, _ := strings.Cut(rest, ";")
	v, err := strconv.ParseInt(hex, 16, 64)
	return int(v), err == nil
}

// entry returns the entry with the number n as journalctl writes it. Successive entries are 1 ms
// apart.
func entry(n int) string {
	return fmt.Sprintf(`{"MESSAGE":"message %d","PRIORITY":"6","__CURSOR":"s=fake;i=%x;b=0;m=0;t=0;x=0","__REALTIME_TIMESTAMP":"%d","SYSLOG_IDENTIFIER":"app"}`+"\n", n, n, base+int64(n)*1000)
}

// A journald writes a journal that the fake of journalctl reads.
type journald struct {
	t   testing.TB
	dir string
}

// newJournald returns an empty journal. The fake reads from it until the test ends.
func newJournald(t testing.TB) *journald {
	d := &journald{t, t.TempDir()}
	t.Setenv("FAKE_JOURNAL", d.dir)
	d.write("")
	return d
}

// write appends text to the journal.
func (d *journald) write(text string) {
	d.t.Helper()
	f, err := os.OpenFile(filepath.Join(d.dir, "entries"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil {
		_, err = f.WriteString(text)
		f.Close()
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// add appends the entries with the numbers n for which first <= n < end.
func (d *journald) add(first, end int) {
	var b bytes.Buffer
	for n := first; n < end; n++ {
		b.WriteString(entry(n))
	}
	d.write(b.String())
}

// vacuum removes all entries before entry n, as journalctl --vacuum does.
func (d *journald) vacuum(n int) {
	path := filepath.Join(d.dir, "entries")
	text, _ := os.ReadFile(path)
	i := bytes.Index(text, []byte(entry(n)))
	if err := os.WriteFile(path, text[i:], 0o600); err != nil {
		d.t.Fatal(err)
	}
}
