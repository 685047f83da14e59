//go:build unix

package tail

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// If a followed file is deleted after it was read to its end, the next process reports nothing. If
// lines of it may be missing, the next process reports that.
func TestDeletedWhileFollowed(t *testing.T) {
	const gone = "the file of the earlier run is gone; content after byte "
	remove := func(f *scenario) { f.must(os.Remove(f.log)) }
	for _, c := range []struct {
		name   string
		change func(f *scenario)
		want   string // part of a message; "": no message
	}{
		{"deleted and scanned", func(f *scenario) { remove(f); f.expect() }, ""},
		{"deleted and not scanned", remove, ""},
		{"deleted and created again", func(f *scenario) { remove(f); f.write("b\n"); f.expect("b\n") }, ""},
		{"renamed and deleted", func(f *scenario) {
			f.must(os.Rename(f.log, f.at("x.log.1")))
			f.expect()
			f.must(os.Remove(f.at("x.log.1")))
		}, ""},
		{"renamed over an earlier file", func(f *scenario) {
			for i := range 3 {
				f.must(os.Rename(f.log, f.at("x.log.1")))
				line := strings.Repeat("b", i) + "\n"
				f.write(line)
				f.expect(line)
			}
		}, ""},
		{"deleted, with an unread line", func(f *scenario) {
			f.write("b\n")
			f.scan()
			remove(f)
		}, gone + "2"},
		{"deleted, with a line that was not found", func(f *scenario) { f.write("b\n"); remove(f) }, gone + "2"},
		{"deleted, with an incomplete line", func(f *scenario) {
			f.write("b")
			f.expect()
			remove(f)
			f.scan()
		}, "1 bytes of it are lost"},
		{"moved to another directory", func(f *scenario) {
			f.must(os.Rename(f.log, f.at("other/x.log")))
			f.expect()
		}, gone + "2"},
	} {
		for _, killed := range []bool{false, true} {
			t.Run(c.name, func(t *testing.T) {
				dir := t.TempDir()
				f := &scenario{dir: dir, log: filepath.Join(dir, "x.log")}
				f.o = Options{Patterns: []string{f.log}, Dir: filepath.Join(dir, "state")}
				f.stepper = newStepper(t, f.o)
				f.must(os.Mkdir(f.at("other"), 0o700))
				f.write("a\n")
				f.expect("a\n")
				f.settle()
				c.change(f)
				if killed {
					f.stepper.at = f.stepper.at.Add(1100 * time.Millisecond)
					f.scan() // the process is killed after it has detected the change
					f.restart()
				} else {
					f.settle()
					f.must(f.Finish(true))
					f.stepper = newStepper(t, f.o)
				}
				f.scan()
				if c.want != "" {
					f.wantMessage(c.want)
				} else if got := strings.Join(f.messages, "\n"); strings.Contains(got, "gone") || strings.Contains(got, "lost") {
					t.Errorf("killed %v: %s", killed, got)
				}
			})
		}
	}
}
