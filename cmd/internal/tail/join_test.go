package tail

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/join"
)

const goPanic = `panic: runtime error: index out of range [5] with length 3

goroutine 1 [running]:
main.(*T).get(...)
	/src/main.go:12
main.main()
	/src/main.go:8 +0x1d
created by main.start in goroutine 1
	/src/main.go:4 +0x25
exit status 2
`

const javaTrace = `2026-11-23 10:00:00 ERROR request failed: java.lang.IllegalStateException: boom
	at shop.Cart.add(Cart.java:42)
	at java.base/java.lang.Thread.run(Thread.java:833)
	Suppressed: java.io.IOException: closed
		at shop.Cart.close(Cart.java:50)
Caused by: java.lang.NullPointerException
	at shop.Db.find(Db.java:7)
	... 23 more
`

const pyTrace = `Traceback (most recent call last):
  File "/app/x.py", line 3, in f
    return d["a"]
           ~^^^^^
KeyError: 'a'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/app/x.py", line 9, in <module>
    f()
ValueError: bad
`

func TestLinesAreJoined(t *testing.T) {
	cri := func(stream, tag, text string) string {
		return "2026-11-23T10:00:00.5Z " + stream + " " + tag + " " + text + "\n"
	}
	doc := func(stream, text string) string {
		return `{"log":"` + text + `","stream":"` + stream + `","time":"2026-11-23T10:00:00.5Z"}` + "\n"
	}
	for _, c := range []struct {
		name, join string
		in         []string // parts of the file's content
		want       []string // expected lines; nil: the parts in the field in
	}{
		{"go", "go", []string{"before\n", goPanic, "after\n"}, nil},
		{"go in auto", "auto", []string{"before\n", goPanic, "after\n"}, nil},
		{"go, two", "go", []string{goPanic, "http: panic serving 1.2.3.4:5: boom\ngoroutine 7 [running]:\nnet/http.(*conn).serve.func1()\n\t/x.go:1 +0x1\n", "x\n"}, nil},
		{"java", "java", []string{"before\n", javaTrace, "after Errors\n", javaTrace, javaTrace, "end\n"}, nil},
		{"python", "python", []string{"before\n", pyTrace, "after\n"}, nil},
		{"all", "go,java,python", []string{"a\n", pyTrace, javaTrace, goPanic, "b\n", javaTrace, pyTrace, "end\n"}, nil},
		{"pattern", `^\d{4}-`, []string{"2026-1 a\n b\n\nc\n", "2026-2\n", "2026-3\nx\n"}, nil},
		{"pattern, first line", `^\d{4}-`, []string{"x\ny\n", "2026-2\n"}, nil},
		{"none", "", []string{"a\n", "\tat x\n"}, nil},
		{"cri", "cri", []string{cri("stdout", "F", "one"), cri("stdout", "P", "tw"), cri("stderr", "F", "err"), cri("stdout", "F", "o"), "bare\n"},
			[]string{"one\n", "err\n", "two\n", "bare\n"}},
		{"cri, no end", "cri", []string{cri("stdout", "P", "a"), cri("stdout", "P", "b")}, []string{"ab\n"}},
		{"cri, empty", "cri", []string{cri("stdout", "F", ""), "2026-11-23T10:00:00Z stdout F\n"}, []string{"\n", "\n"}},
		{"cri and java", "cri,java", []string{cri("stderr", "F", "a.BException: c"), cri("stdout", "F", "out"), cri("stderr", "F", "\tat d"), cri("stderr", "F", "e")},
			[]string{"out\n", "a.BException: c\n\tat d\n", "e\n"}},
		{"docker", "docker", []string{doc("stdout", `one\n`), doc("stdout", `tw`), doc("stderr", `\u001b[31m\"err\"\n`), doc("stdout", `o\n`), "{}\n"},
			[]string{"one\n", "\x1b[31m\"err\"\n", "two\n", "{}\n"}},
		{"auto docker", "auto", []string{doc("stderr", `a.BException: c\n`), doc("stderr", `\tat d\n`)}, []string{"a.BException: c\n\tat d\n"}},
		{"auto cri", "auto", []string{cri("stdout", "P", "a"), cri("stdout", "F", "b"), `{"log":"mine"}` + "\n"}, []string{"ab\n", `{"log":"mine"}` + "\n"}},
	} {
		var names []string
		if c.join != "" {
			names = strings.Split(c.join, ",")
		}
		rules, err := join.Parse(names)
		if err != nil {
			t.Fatal(err)
		}
		want := c.want
		if want == nil {
			want = c.in
		}
		s, _ := readOnce(t, strings.Join(c.in, ""), Options{Join: rules})
		if !reflect.DeepEqual(s.lines, want) {
			t.Errorf("%s: got\n%q, want\n%q", c.name, s.lines, want)
		}
	}
}

// A Line has the stream and the time that the container runtime recorded.
func TestStreamAndTimeOfContainerLine(t *testing.T) {
	rules, _ := join.Parse([]string{"cri"})
	s, _ := readOnce(t, "2026-11-23T10:00:00.5Z stderr P a\n2026-11-23T10:00:01Z stderr F b\n", Options{Join: rules})
	if l := s.sources[0]; l.Stream != "stderr" || !l.Time.Equal(time.Date(2026, 11, 23, 10, 0, 0, 5e8, time.UTC)) {
		t.Errorf("%+v", l)
	}
}

// A joined record ends when it reaches MaxRecord, JoinLines or JoinWait. The following lines form
// further records.
func TestJoinedRecordsAreLimited(t *testing.T) {
	rules, _ := join.Parse([]string{"java"})
	in := "a.BException\n" + strings.Repeat("\tat x\n", 100)
	s, _ := readOnce(t, in, Options{Join: rules, JoinLines: 10})
	if len(s.lines) != 11 || strings.Join(s.lines, "") != in {
		t.Errorf("%d records: %q", len(s.lines), s.lines)
	}
	s, _ = readOnce(t, in, Options{Join: rules, MaxRecord: 61})
	if len(s.lines) != 11 || len(s.lines[1]) > 61 || strings.Join(s.lines, "") != in {
		t.Errorf("%d records: %q", len(s.lines), s.lines)
	}
	path := t.TempDir() + "/x.log"
	h := newStepper(t, Options{Patterns: []string{path}, Join: rules, JoinWait: time.Minute})
	write(t, path, "a.BException\n")
	h.advance(0)
	h.want()
	for range 9 {
		write(t, path, "\tat x\n")
		h.advance(50 * time.Second)
	}
	h.want()
	h.advance(2 * time.Minute)
	h.want("a.BException\n" + strings.Repeat("\tat x\n", 9))

	rules, _ = join.Parse([]string{"cri"})
	s, _ = readOnce(t, strings.Repeat("2026-11-23T10:00:00.5Z stderr P 1234567890\n", 25), Options{Join: rules, MaxRecord: 100})
	if want := strings.Repeat("1234567890", 10) + "\n"; len(s.lines) != 3 || s.lines[0] != want || s.lines[1] != want {
		t.Errorf("%q", s.lines)
	}
}

// After a kill, a held record is read again from its first line.
func TestHeldLinesComeAgainAfterAKill(t *testing.T) {
	dir := t.TempDir()
	path := dir + "/x.log"
	rules, _ := join.Parse([]string{"java"})
	o := Options{Patterns: []string{path}, Join: rules, JoinWait: time.Hour, Dir: dir + "/state"}
	h := newStepper(t, o)
	write(t, path, "one\na.BException\n\tat x\n")
	h.advance(0)
	h.want("one\n")
	for range 3 {
		h.advance(2 * time.Second)
		h.settle()
	}
	h.keeper.store.close()
	write(t, path, "\tat y\ntwo\n")
	h = newStepper(t, o)
	h.advance(0)
	h.want("a.BException\n\tat x\n\tat y\n", "two\n")
}

// Stop delivers held lines if no positions are stored. If positions are stored, the next run reads
// the held lines again.
func TestStopWhileHolding(t *testing.T) {
	for _, dir := range []string{"", "state"} {
		rules, err := join.Parse([]string{"java"})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "x.log")
		if dir != "" {
			dir = filepath.Join(t.TempDir(), dir)
		}
		h := newStepper(t, Options{Patterns: []string{path}, Join: rules, JoinWait: time.Hour, Dir: dir})
		write(t, path, "java.io.IOException: boom\n\tat a.b(C.java:1)\n")
		h.advance(0)
		h.want()
		h.o.now = time.Now
		h.Stop()
		if err := h.Run(); err != ErrStopped {
			t.Fatal(err)
		}
		if dir == "" {
			h.want("java.io.IOException: boom\n\tat a.b(C.java:1)\n")
		} else {
			h.want() // the next run reads the record again
		}
	}
}
