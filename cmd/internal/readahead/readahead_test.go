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

// errKilled is the panic that simulates a kill in the middle of a read.
var errKilled = errors.New("killed")

// A source returns its text in random pieces. After left reads it simulates a kill: the data is in
// the ring, but Read has not returned it.
type source struct {
	text  []byte
	at    int
	piece func() int
	left  int // reads
}

func (p *source) Read(b []byte) (int, error) {
	if p.at == len(p.text) {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.piece())], p.text[p.at:])
	p.at += n
	if p.left--; p.left == 0 {
		panic(errKilled)
	}
	return n, nil
}

func mustCreate(t *testing.T, dir string, o Options) *File {
	t.Helper()
	f, err := Create(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// mustAdopt returns the only file that a dead process has left for outputs.
func mustAdopt(t *testing.T, dir string, outputs ...string) *File {
	t.Helper()
	files, damaged := Adopt(dir, outputs)
	if len(files) != 1 || len(damaged) > 0 {
		t.Fatalf("%d files, %v", len(files), damaged)
	}
	return files[0]
}

// killed runs f and reports whether it was killed.
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

// Processes are killed at random moments, also between a read and the next store. Each output
// receives every line in order, and only the line that was being passed may be repeated. No line is
// invented, and a line that is too long is skipped completely.
func TestKilledProcessesRepeatOneLine(t *testing.T) {
	rng := testkit.Rand(testkit.Seed(t))
	for range testkit.Rounds(60, 20000) {
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
		in := &source{text: text, piece: func() int { return 1 + rng.IntN(5000) }}
		outputs := []string{"a", "b", "c"}
		o := Options{Outputs: outputs, Bytes: lines.BufferBytes(longest)}
		got := make([][]string, len(outputs))
		kills := 0
		f := mustCreate(t, dir, o)
		for done := false; !done; {
			in.left = 1 + rng.IntN(40)
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
				t.Fatal("neither killed nor ended")
			}
			if ended {
				f.Close()
				break
			}
			kills++
			f.image.leave()
			files, damaged := Adopt(dir, outputs)
			if len(damaged) > 0 || len(files) > 1 {
				t.Fatal(len(files), damaged)
			}
			if len(files) == 0 { // the dead process has left no input
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

// If a process is killed within a line that is too long, its stored position is known to be within
// that line, whether it was waiting for more data or was between two stores.
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
		f.image.leave()
		f = mustAdopt(t, dir, "a")
		if !f.InLongLine() {
			t.Fatalf("it begins at %d of %d, and is not known to be within a line", f.start, f.end)
		}
	}
	read()
	for range 4 {
		settle()
		next()
		read()
		f.refused[0] = true // prevents the store of the position
		settle()
		next()
		read() // read it again
	}
}

// Damage to the file during use ends the protection and has no other effect.
func TestDamagedWhileInUse(t *testing.T) {
	for name, harm := range map[string]func(path string) error{
		"truncated": func(path string) error { return os.Truncate(path, 0) },
		"deleted":   os.Remove,
	} {
		text := bytes.Repeat([]byte("0123456789abcdef\n"), 100_000)
		dir := t.TempDir()
		f := mustCreate(t, dir, Options{Outputs: []string{"a"}, Bytes: lines.BufferBytes(100)})
		told := 0
		f.From(&source{text: text, piece: func() int { return 10_000 }}, func(err error) {
			told++
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
				if err := harm(f.image.path); err != nil {
					t.Fatal(err)
				}
			}
		}
		if n != 100_000 || told != 1 || f.Broken() == nil {
			t.Errorf("%s: %d lines, told %d times, %v", name, n, told, f.Broken())
		}
		f.Close()
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%s: left %v", name, left)
		}
	}
}

// Each output of a file can be processed separately, and keeps its position meanwhile.
func TestEachOutputKeepsItsPosition(t *testing.T) {
	dir := t.TempDir()
	f := mustCreate(t, dir, Options{Outputs: []string{"a", "b"}, Bytes: 4096})
	f.From(strings.NewReader("one\ntwo\n"), nil)
	if n, _ := f.Read(make([]byte, 100)); n != 8 {
		t.Fatal(n)
	}
	f.Accept(0, 4)
	if files, _ := Adopt(dir, []string{"a"}); len(files) > 0 {
		t.Error("the file of a living process was taken")
	}
	if in := List(dir); len(in) != 1 || !in[0].Alive {
		t.Errorf("%+v", in)
	}
	f.image.leave()
	if in := List(dir); len(in) != 1 || in[0].Alive || string(in[0].Pending["a"]) != "two\n" || string(in[0].Pending["b"]) != "one\ntwo\n" {
		t.Errorf("%+v", in)
	}
	if files, _ := Adopt(dir, []string{"c"}); len(files) > 0 {
		t.Error("another output has taken it")
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

// A process continues with a file only if it reads from the same pipe.
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
		made, now Options
		want      bool
	}{
		{Options{Input: a}, Options{Input: a}, true},
		{Options{Input: a}, Options{Input: b}, false},
		{Options{Input: file}, Options{Input: file}, false},
		{Options{Input: a, Outputs: []string{"x"}}, Options{Input: a, Outputs: []string{"y"}}, false},
		{Options{Input: a, Bytes: 8192}, Options{Input: a, Bytes: 4096}, true},
		{Options{Input: a, Bytes: 4096}, Options{Input: a, Bytes: 8192}, false},
	} {
		if c.made.Bytes == 0 {
			c.made.Bytes, c.now.Bytes = 4096, 4096
		}
		f := mustCreate(t, t.TempDir(), c.made)
		if got := f.Continues(c.now); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
		f.Close()
	}
}

// A file with any content is read, or reported and renamed, or left unchanged.
func TestDamagedFilesAreRenamed(t *testing.T) {
	made := func() (dir, path string) {
		dir = t.TempDir()
		f := mustCreate(t, dir, Options{Outputs: []string{"a"}, Bytes: 4096})
		f.From(strings.NewReader("one\n"), nil)
		if _, err := f.Read(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		f.image.leave()
		return dir, f.image.path
	}
	rng := testkit.Rand(testkit.Seed(t))
	for range testkit.Rounds(200, 10000) {
		dir, path := made()
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
	dir, path := made()
	if err := Purge(path); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Error(left)
	}
	_, path = made()
	f, err := adopt(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := Purge(path); !errors.Is(err, mapped.ErrInUse) {
		t.Error(err)
	}
	f.image.leave()
}

func BenchmarkRead(b *testing.B) {
	for _, kept := range []bool{false, true} {
		b.Run(fmt.Sprintf("kept=%v", kept), func(b *testing.B) {
			text := bytes.Repeat([]byte(strings.Repeat("x", 99)+"\n"), 100_000)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				in := &source{text: text, piece: func() int { return 64 << 10 }}
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
