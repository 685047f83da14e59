//go:build linux || darwin

package readahead

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forebay-log/forebay/cmd/internal/lines"
	"github.com/forebay-log/forebay/internal/mapped"
	"github.com/forebay-log/forebay/internal/testkit"
)

// errKilled is the value of a panic that simulates a kill during a read.
var errKilled = errors.New("killed")

// A source returns its text in parts of random size. After readsLeft reads it simulates a kill: it
// writes data to the buffer and panics.
type source struct {
	text      []byte
	at        int
	size      func() int // returns the maximum size of a read
	readsLeft int        // number of reads before the kill; 0: no kill
}

func (p *source) Read(b []byte) (int, error) {
	if p.at == len(p.text) {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.size())], p.text[p.at:])
	p.at += n
	if p.readsLeft--; p.readsLeft == 0 {
		panic(errKilled)
	}
	return n, nil
}

// mustCreate creates a file in dir. It fails the test if that is not possible.
func mustCreate(t *testing.T, dir string, o Options) *File {
	t.Helper()
	f, err := Create(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// mustAdopt adopts the file of a dead process in dir. It fails the test unless there is exactly
// one.
func mustAdopt(t *testing.T, dir string, outputs ...string) *File {
	t.Helper()
	files, damaged := Adopt(dir, outputs)
	if len(files) != 1 || len(damaged) > 0 {
		t.Fatalf("%d files, %v", len(files), damaged)
	}
	return files[0]
}

// killed calls f, and reports whether a simulated kill has ended it.
func killed(f func()) (was bool) {
	defer func() {
		if r := recover(); r == errKilled {
			was = true
		} else if r != nil {
			panic(r)
		}
	}()
	f()
	return false
}

// If processes are killed at random times, each output receives every line in order, and each kill
// repeats at most one line. A line that is too long is always skipped completely.
func TestKilledProcessesRepeatOneLine(t *testing.T) {
	rng := testkit.Rand(testkit.Seed(t))
	for range testkit.Rounds(t, 60, 20000) {
		dir := t.TempDir()
		const longest = 50
		var text []byte
		var want []string
		for i := range 300 {
			line := fmt.Sprintf("%d %s\n", i, strings.Repeat("x", rng.IntN(longest-5)))
			if rng.IntN(10) == 0 {
				line = fmt.Sprintf("%d %s\n", i, strings.Repeat("y", longest+rng.IntN(20_000)))
			} else {
				want = append(want, line)
			}
			text = append(text, line...)
		}
		in := &source{text: text, size: func() int { return 1 + rng.IntN(5000) }}
		outputs := []string{"a", "b", "c"}
		o := Options{Outputs: outputs, Bytes: lines.BufferBytes(longest)}
		got := make([][]string, len(outputs))
		kills := 0
		f := mustCreate(t, dir, o)
		for done := false; !done; {
			in.readsLeft = 1 + rng.IntN(40)
			f.From(in, func(err error) { t.Error(err) })
			ended := false
			if !killed(func() {
				src := lines.New(f, longest)
				for {
					line, err := src.Next()
					if lines.IsTooLong(err) {
						continue
					}
					if err != nil {
						f.Settle(src.Offset(), false)
						ended = true
						return
					}
					for i := range outputs {
						if f.Has(i, src.Offset()) {
							continue
						}
						got[i] = append(got[i], string(line))
						if rng.IntN(200) == 0 {
							panic(errKilled)
						}
						f.Accept(i, src.Offset())
					}
					if rng.IntN(200) == 0 {
						panic(errKilled)
					}
				}
			}) && !ended {
				t.Fatal("the process was not killed, and did not read the input to its end")
			}
			if ended {
				f.Close()
				break
			}
			kills++
			f.image.release()
			files, damaged := Adopt(dir, outputs)
			if len(damaged) > 0 || len(files) > 1 {
				t.Fatal(len(files), damaged)
			}
			if len(files) == 0 { // the dead process had delivered all input
				files = append(files, mustCreate(t, dir, o))
			}
			f = files[0]
		}
		for i := range got {
			again := len(got[i]) - len(slices.Compact(slices.Clone(got[i])))
			if once := slices.Compact(got[i]); !slices.Equal(once, want) || again > kills {
				t.Fatalf("output %d has %d lines, %d of them twice after %d kills, want %d", i, len(once), again, kills, len(want))
			}
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Fatal(left)
		}
	}
}

// If a process is killed within a line that is too long, InLongLine makes the next process skip the
// rest of the line. This also holds if the kill occurs between the two stores in Settle.
func TestKilledWithinLongLine(t *testing.T) {
	dir := t.TempDir()
	f := mustCreate(t, dir, Options{Outputs: []string{"a"}, Bytes: 4096})
	read := func() {
		t.Helper()
		f.From(strings.NewReader("yyyyyyyyyy"), nil)
		if n, err := f.Read(make([]byte, 100)); n != 10 {
			t.Fatal(n, err)
		}
	}
	settle := func() { f.Settle(int64(f.end-f.start), true) }
	next := func() {
		t.Helper()
		f.image.release()
		f = mustAdopt(t, dir, "a")
		if !f.InLongLine() {
			t.Fatalf("InLongLine is false at position %d of %d", f.start, f.end)
		}
	}
	read()
	for range 4 {
		settle()
		next()
		read()
		f.refused[0] = true // simulates a kill before the position of the output is stored
		settle()
		next()
		read() // reads the same input again, because its position was not stored
	}
}

// If the file is deleted or truncated while it is in use, one message reports this. All input is
// still read, but no longer stored.
func TestDamagedWhileInUse(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"truncated": func(path string) error { return os.Truncate(path, 0) },
		"deleted":   os.Remove,
	} {
		text := bytes.Repeat([]byte("0123456789abcdef\n"), 100_000)
		dir := t.TempDir()
		f := mustCreate(t, dir, Options{Outputs: []string{"a"}, Bytes: lines.BufferBytes(100)})
		reports := 0
		f.From(&source{text: text, size: func() int { return 10_000 }}, func(err error) {
			reports++
			if !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
		})
		src := lines.New(f, 100)
		n := 0
		for {
			line, err := src.Next()
			if err == io.EOF {
				break
			}
			if err != nil || len(line) != 17 {
				t.Fatal(err)
			}
			f.Accept(0, src.Offset())
			if n++; n == 5000 {
				if err := damage(f.image.path); err != nil {
					t.Fatal(err)
				}
			}
		}
		if n != 100_000 || reports != 1 || f.Broken() == nil {
			t.Errorf("%s: got %d lines and %d reports, want 100000 and 1; Broken returned %v", name, n, reports, f.Broken())
		}
		f.Close()
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%s: left %v", name, left)
		}
	}
}

// If a file is adopted for some of its outputs, the positions of the other outputs do not change.
func TestEachOutputKeepsItsPosition(t *testing.T) {
	dir := t.TempDir()
	f := mustCreate(t, dir, Options{Outputs: []string{"a", "b"}, Bytes: 4096})
	f.From(strings.NewReader("one\ntwo\n"), nil)
	if n, _ := f.Read(make([]byte, 100)); n != 8 {
		t.Fatal(n)
	}
	f.Accept(0, 4)
	if files, _ := Adopt(dir, []string{"a"}); len(files) > 0 {
		t.Error("the file of a running process was adopted")
	}
	if in := List(dir); len(in) != 1 || !in[0].Alive {
		t.Errorf("%+v", in)
	}
	f.image.release()
	if in := List(dir); len(in) != 1 || in[0].Alive || string(in[0].Pending["a"]) != "two\n" || string(in[0].Pending["b"]) != "one\ntwo\n" {
		t.Errorf("%+v", in)
	}
	if files, _ := Adopt(dir, []string{"c"}); len(files) > 0 {
		t.Error("the file was adopted for an output that it does not contain")
	}
	f = mustAdopt(t, dir, "b", "c")
	text, _ := io.ReadAll(f)
	if f.Output("c") != -1 || f.Output("b") != 1 || string(text) != "one\ntwo\n" {
		t.Errorf("%q", text)
	}
	f.Settle(8, false)
	f.Close()
	f = mustAdopt(t, dir, "a")
	text, _ = io.ReadAll(f)
	if string(text) != "two\n" {
		t.Errorf("%q", text)
	}
	f.Settle(4, false)
	f.Close()
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Error(left)
	}
}

// A process continues a file only if it reads from the same pipe for the same outputs and the ring
// is large enough.
func TestContinuesOnlyWithSamePipe(t *testing.T) {
	pipe := func() *os.File {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close(); w.Close() })
		return r
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "x"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	a, b := pipe(), pipe()
	for _, c := range []struct {
		old, now Options
		want     bool
	}{
		{Options{Input: a}, Options{Input: a}, true},
		{Options{Input: a}, Options{Input: b}, false},
		{Options{Input: file}, Options{Input: file}, false},
		{Options{Input: a, Outputs: []string{"x"}}, Options{Input: a, Outputs: []string{"y"}}, false},
		{Options{Input: a, Bytes: 8192}, Options{Input: a, Bytes: 4096}, true},
		{Options{Input: a, Bytes: 4096}, Options{Input: a, Bytes: 8192}, false},
	} {
		if c.old.Bytes == 0 {
			c.old.Bytes, c.now.Bytes = 4096, 4096
		}
		f := mustCreate(t, t.TempDir(), c.old)
		if got := f.Continues(c.now); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
		f.Close()
	}
}

// A damaged identity is always reported. Any other damage is reported or has no effect.
func TestDamagedFilesAreRenamed(t *testing.T) {
	create := func() (dir, path string) {
		dir = t.TempDir()
		f := mustCreate(t, dir, Options{Outputs: []string{"a"}, Bytes: 4096})
		f.From(strings.NewReader("one\n"), nil)
		if _, err := f.Read(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		f.image.release()
		return dir, f.image.path
	}
	rng := testkit.Rand(testkit.Seed(t))
	for range testkit.Rounds(t, 200, 10000) {
		dir, path := create()
		b, _ := os.ReadFile(path)
		at := rng.IntN(2*page + 8)
		bit := byte(1) << rng.IntN(8)
		b[at] ^= bit
		if rng.IntN(4) == 0 {
			b = b[:rng.IntN(len(b))]
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		files, damaged := Adopt(dir, []string{"a"})
		List(dir)
		for _, f := range files {
			if _, err := io.Copy(io.Discard, f); err != nil {
				t.Error(err)
			}
			f.Close()
		}
		if at < page && at != 8 && at != 9 && at != 10 && at != 11 && len(damaged) != 1 {
			t.Errorf("byte %d, bit %x: %v", at, bit, damaged)
		}
	}
	dir, path := create()
	if err := Purge(path); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Error(left)
	}
	_, path = create()
	f, err := adopt(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := Purge(path); !errors.Is(err, mapped.ErrInUse) {
		t.Error(err)
	}
	f.image.release()
}

func BenchmarkRead(b *testing.B) {
	for _, kept := range []bool{false, true} {
		b.Run(fmt.Sprintf("kept=%v", kept), func(b *testing.B) {
			text := bytes.Repeat([]byte(strings.Repeat("x", 99)+"\n"), 100_000)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				in := &source{text: text, size: func() int { return 64 << 10 }}
				src := lines.New(in, 1000)
				var f *File
				if kept {
					var err error
					if f, err = Create(b.TempDir(), Options{Outputs: []string{"a"}, Bytes: lines.BufferBytes(1000)}); err != nil {
						b.Fatal(err)
					}
					f.From(in, nil)
					src = lines.New(f, 1000)
				}
				for {
					if _, err := src.Next(); err != nil {
						break
					}
					if kept {
						f.Accept(0, src.Offset())
					}
				}
				if kept {
					f.Close()
				}
			}
		})
	}
}
