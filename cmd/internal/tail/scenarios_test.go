package tail

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// A scenario is a Tailer that follows one file.
type scenario struct {
	*stepper
	dir, log string // log is the path of the followed file, which is in the directory dir
	o        Options
}

// write appends text to the followed file, or to the named file in the same directory.
func (f *scenario) write(text string, name ...string) {
	f.t.Helper()
	path := f.log
	if len(name) > 0 {
		path = filepath.Join(f.dir, name[0])
	}
	write(f.t, path, text)
}

// must fails the test if err is not nil.
func (f *scenario) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// at returns the path of the named file in the directory of the followed file.
func (f *scenario) at(name string) string { return filepath.Join(f.dir, name) }

// expect makes the Tailer scan and read, and checks that it delivers exactly these lines.
func (f *scenario) expect(lines ...string) {
	f.t.Helper()
	f.advance(0)
	f.want(lines...)
}

// restart kills the process and starts another one.
func (f *scenario) restart() {
	f.t.Helper()
	f.settle()
	f.must(f.Finish(false))
	f.stepper = newStepper(f.t, f.o)
}

// The Tailer delivers the expected lines in each scenario. Some scenarios are the test cases of
// promtail's tailer.
func TestScenarios(t *testing.T) {
	for _, c := range []struct {
		name string
		o    Options
		do   func(f *scenario)
	}{
		{"a file that does not exist yet", Options{}, func(f *scenario) {
			f.expect()
			f.write("hello\nworld\n")
			f.expect("hello\n", "world\n")
		}},
		{"a file that is deleted and created again", Options{}, func(f *scenario) {
			f.write("hello\n")
			f.expect("hello\n")
			f.must(os.Remove(f.log))
			f.expect()
			f.write("more\n")
			f.expect("more\n")
		}},
		{"a file that is renamed and created again", Options{}, func(f *scenario) {
			f.write("hello\n")
			f.expect("hello\n")
			f.write("late\n")
			f.must(os.Rename(f.log, f.at("x.log.1")))
			f.write("later\n", "x.log.1")
			f.write("new\n")
			f.expect("late\n", "later\n", "new\n")
		}},
		{"a file that is created and renamed between two scans", Options{}, func(f *scenario) {
			f.write("hello\n")
			f.must(os.Rename(f.log, f.at("x.log.1")))
			f.write("endofworld\n")
			f.expect("endofworld\n") // x.log.1 is not found, because x.log was renamed before the scan
		}},
		{"rotation by numbers, three times between two scans", Options{}, func(f *scenario) {
			f.write("0\n")
			f.expect("0\n")
			for i := 1; i <= 3; i++ {
				for n := 3; n > 0; n-- {
					os.Rename(f.at(fmt.Sprintf("x.log.%d", n)), f.at(fmt.Sprintf("x.log.%d", n+1)))
				}
				f.must(os.Rename(f.log, f.at("x.log.1")))
				f.write(fmt.Sprintf("%d\n", i))
			}
			f.expect("3\n") // the files with 1 and 2 were rotated before a scan found them
		}},
		{"copy and truncate, with new content that is longer", Options{}, func(f *scenario) {
			f.write("a\nb\n")
			f.expect("a\n", "b\n")
			f.write("c\n")
			f.write("a\nb\nc\n", "x.log.1")
			f.must(os.Truncate(f.log, 0))
			f.write("d\ne\nf\ng\n")
			f.expect("c\n", "d\n", "e\n", "f\n", "g\n")
		}},
		{"truncated, with new content that is longer", Options{}, func(f *scenario) {
			f.write("aaaa\nbbbb\n")
			f.expect("aaaa\n", "bbbb\n")
			f.must(os.Truncate(f.log, 0))
			f.write("cccc\ndddd\n")
			f.write("eeee\n")
			f.expect("cccc\n", "dddd\n", "eeee\n")
		}},
		{"truncated, with new content of the same size", Options{}, func(f *scenario) {
			f.write("aaaa\nbbbb\n")
			f.expect("aaaa\n", "bbbb\n")
			f.must(os.Truncate(f.log, 0))
			f.write("cccc\ndddd\n")
			f.must(os.Chtimes(f.log, time.Unix(2e9, 0), time.Unix(2e9, 0)))
			f.expect("cccc\n", "dddd\n")
		}},
		{"overwritten with shorter content", Options{}, func(f *scenario) {
			f.write("a really long string goes here\nhello\nworld\n")
			f.expect("a really long string goes here\n", "hello\n", "world\n")
			f.must(os.WriteFile(f.log, []byte("h311o\nw0r1d\nendofworld\n"), 0o600))
			f.expect("h311o\n", "w0r1d\n", "endofworld\n")
		}},
		{"truncated and not written to", Options{}, func(f *scenario) {
			f.write("a\n")
			f.expect("a\n")
			f.must(os.Truncate(f.log, 0))
			f.expect()
			f.write("b\n")
			f.expect("b\n")
		}},
		{"a link that is replaced by a link to another file", Options{}, func(f *scenario) {
			f.write("1\n", "one")
			f.write("2\n", "two")
			f.must(os.Symlink("one", f.log))
			f.expect("1\n")
			f.write("1b\n", "one")
			f.must(os.Symlink("two", f.at("new")))
			f.must(os.Rename(f.at("new"), f.log)) // replace the symbolic link atomically, as kubelet does
			f.expect("1b\n", "2\n")
			f.must(os.Remove(f.log)) // no position of the first file is stored any more
			f.must(os.Symlink("one", f.log))
			f.write("1c\n", "one")
			f.advance(10 * time.Second)
			if got := strings.Join(f.s.lines, ""); !strings.HasSuffix(got, "1c\n") {
				f.t.Fatalf("%q", got)
			}
		}},
		{"a link to nothing, then to a file", Options{}, func(f *scenario) {
			f.must(os.Symlink("later", f.log))
			f.expect()
			f.write("a\n", "later")
			f.expect("a\n")
		}},
		{"an inode that is reused while no process runs", Options{}, func(f *scenario) {
			f.write("old one\n")
			f.expect("old one\n")
			f.settle()
			f.must(f.Finish(true))
			f.must(os.Remove(f.log))
			f.write("new one\nand more\n")
			f.stepper = newStepper(f.t, f.o)
			f.expect("new one\n", "and more\n")
		}},
		{"a file that is deleted while it is unread", Options{}, func(f *scenario) {
			f.write("a\n")
			f.expect("a\n")
			f.write("b\n")
			f.must(os.Remove(f.log))
			f.expect("b\n") // the deleted file was still open
		}},
		{"a long line that does not end", Options{MaxRecord: 100}, func(f *scenario) {
			f.write("a\n" + strings.Repeat("x", 90))
			f.expect("a\n")
			for range 50 {
				f.write(strings.Repeat("x", 90))
				f.expect()
			}
			f.write("\nb\n")
			f.expect("b\n")
			if len(f.s.long) != 1 || f.s.long[0] != 51*90+1 {
				f.t.Fatal(f.s.long)
			}
		}},
		{"lines around 4096 bytes", Options{}, func(f *scenario) {
			long := strings.Repeat("a", 4097)
			f.write("test\n" + long + "\nhello\n")
			f.expect("test\n", long+"\n", "hello\n")
		}},
		{"CRLF newlines, one of them written in two parts", Options{}, func(f *scenario) {
			f.write("a\r\nb\r")
			f.expect("a\r\n")
			f.write("\nc\r\n")
			f.expect("b\r\n", "c\r\n")
		}},
		{"NUL bytes before, within and after lines", Options{}, func(f *scenario) {
			f.write("\x00\x00a line\nanother\x00one\n\x00\x00\x00")
			f.expect("a line\n", "another\x00one\n")
			f.write("d\n")
			f.expect("d\n")
		}},
		{"reserved space that is filled later", Options{}, func(f *scenario) {
			f.write("a\n")
			f.must(os.Truncate(f.log, 1000)) // reserve space, as fallocate does
			f.expect("a\n")
			w, err := os.OpenFile(f.log, os.O_WRONLY, 0)
			f.must(err)
			defer w.Close()
			_, err = w.WriteAt([]byte("b\n"), 2)
			f.must(err)
			f.must(os.Chtimes(f.log, time.Unix(2e9, 0), time.Unix(2e9, 0)))
			f.expect("b\n")
		}},
		{"a byte order mark of UTF-8", Options{}, func(f *scenario) {
			f.write("\xef\xbb\xbfa\nb\n")
			f.expect("a\n", "b\n")
		}},
		{"a byte order mark that is written before any text", Options{}, func(f *scenario) {
			f.write("\xef\xbb\xbf")
			f.expect()
			f.write("a\n")
			f.expect("a\n")
		}},
		{"a UTF-16 file that is overwritten with UTF-8", Options{}, func(f *scenario) {
			f.write("\xff\xfea\x00\n\x00")
			f.expect()
			f.wantMessage("it is UTF-16, which needs the charset utf-16; it is not followed")
			f.must(os.WriteFile(f.log, []byte("b\n"), 0o600))
			f.expect("b\n")
		}},
		{"permission that is granted later", Options{}, func(f *scenario) {
			if os.Getuid() == 0 {
				f.must(os.Mkdir(f.log, 0o700)) // a directory at the path of the file is unreadable, also for root
				f.expect()
				f.wantMessage("it is a directory")
				f.must(os.Remove(f.log))
			} else {
				f.write("secret\n")
				f.must(os.Chmod(f.log, 0))
				f.expect()
				f.wantMessage("permission denied; retrying")
				f.must(os.Chmod(f.log, 0o600))
				f.advance(10 * time.Second)
				f.want("secret\n")
				return
			}
			f.write("a\n")
			f.advance(10 * time.Second)
			f.want("a\n")
		}},
		{"rotated files that are compressed in the same directory", Options{}, func(f *scenario) {
			f.o.Patterns = []string{f.at("x.log*")}
			f.restart()
			f.write("a\n")
			f.expect("a\n")
			f.write("b\n")
			f.must(os.Rename(f.log, f.at("x.log.1")))
			f.write("c\n")
			f.expect("b\n", "c\n")
			f.must(os.WriteFile(f.at("x.log.1.gz"), []byte("\x1f\x8b\x08\x00\x00"), 0o600))
			f.must(os.Remove(f.at("x.log.1")))
			f.expect()
			f.wantMessage("x.log.1.gz: it is compressed (gzip); it is not followed")
			f.write("d\n")
			f.expect("d\n")
		}},
		{"a writer that appends while the file is read", Options{}, func(f *scenario) {
			n := 0
			f.s.full = func() error { // write another line for each accepted line
				if n++; n < 50 {
					f.write(fmt.Sprintf("%d\n", n))
				}
				return nil
			}
			f.write("0\n")
			var want []string
			for i := range 50 {
				want = append(want, fmt.Sprintf("%d\n", i))
			}
			for range 20 {
				f.advance(0)
			}
			f.want(want...)
		}},
		{"a line that is written in two parts", Options{}, func(f *scenario) {
			f.write("hel")
			f.expect()
			f.write("lo\nwor")
			f.expect("hello\n")
			f.restart()
			f.expect()
			f.write("ld\n")
			f.expect("world\n")
		}},
		{"a partial line in a renamed file, and a new file", Options{}, func(f *scenario) {
			f.write("a\npart")
			f.expect("a\n")
			f.must(os.Rename(f.log, f.at("x.log.1")))
			f.write("new\n")
			f.expect() // the new file may complete the line
			f.advance(10 * time.Second)
			f.want("partnew\n")
		}},
		{"a partial line in a renamed file, and no new file", Options{}, func(f *scenario) {
			f.write("a\npart")
			f.expect("a\n")
			f.must(os.Rename(f.log, f.at("x.log.1")))
			f.expect()
			f.advance(10 * time.Second)
			f.want("part\n")
			if last := f.s.sources[len(f.s.sources)-1]; !last.Cut {
				f.t.Error("Line.Cut is false")
			}
			f.write("new\n")
			f.expect("new\n")
		}},
		{"a file that is renamed and renamed back", Options{}, func(f *scenario) {
			f.write("a\n")
			f.expect("a\n")
			f.must(os.Rename(f.log, f.at("aside")))
			f.expect()
			f.must(os.Rename(f.at("aside"), f.log))
			f.write("b\n")
			f.expect("b\n")
		}},
		{"two names of one file", Options{}, func(f *scenario) {
			f.o.Patterns = []string{f.at("*.log")}
			f.restart()
			f.write("a\n")
			f.must(os.Link(f.log, f.at("y.log")))
			f.expect("a\n")
			f.must(os.Remove(f.log))
			f.write("b\n", "y.log")
			f.expect("b\n")
		}},
		{"a name that contains characters of patterns", Options{}, func(f *scenario) {
			f.o.Patterns = []string{f.at("a[1]*.log")}
			f.write("a\n", "a[1]*.log")
			f.restart()
			f.expect("a\n")
		}},
		{"a directory that is renamed with the file, and created again", Options{}, func(f *scenario) {
			f.must(os.Mkdir(f.at("d"), 0o700))
			f.o.Patterns = []string{f.at("d/*.log")}
			f.restart()
			f.write("a\n", "d/x.log")
			f.expect("a\n")
			f.must(os.Rename(f.at("d"), f.at("e")))
			f.expect()
			f.must(os.Mkdir(f.at("d"), 0o700))
			f.write("b\n", "d/x.log")
			f.expect("b\n")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if runtime.GOOS == "windows" {
				t.Skip("SKIPPED: files of Windows are not renamed or deleted while they are open")
			}
			dir := t.TempDir()
			f := &scenario{dir: dir, log: filepath.Join(dir, "x.log"), o: c.o}
			f.o.Patterns, f.o.Dir = []string{f.log}, filepath.Join(dir, "state")
			f.stepper = newStepper(t, f.o)
			c.do(f)
		})
	}
}
