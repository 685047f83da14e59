//go:build linux || darwin

package slablog

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/crashfile"
	"github.com/forebay-log/forebay/slab"
)

// badDict is a dictionary that panics, or ends the goroutine, in some calls.
type badDict struct {
	*dictSink
	unwind func()
	id     uint32 // stream for which AppendStream panics or ends the goroutine
	def    string // definition for which Stream panics or ends the goroutine
	locked func() bool
}

func (d *badDict) AppendStream(dst []byte, id uint32) ([]byte, bool) {
	if d.locked != nil && d.locked() {
		panic("AppendStream is called with the Writer's lock held")
	}
	if id == d.id {
		d.unwind()
	}
	return d.dictSink.AppendStream(dst, id)
}

func (d *badDict) Stream(def []byte) uint32 {
	if string(def) == d.def {
		d.unwind()
	}
	return d.dictSink.Stream(def)
}

// If AppendStream panics or ends the goroutine, an event reports that. The records of the stream
// are accepted and delivered like all others.
func TestAppendStreamUnwinds(t *testing.T) {
	for name, unwind := range unwinds {
		for _, size := range []int{100, 3000} { // the larger record does not fit into a slab
			t.Run(fmt.Sprint(name, size), func(t *testing.T) {
				var ev events
				d := &badDict{dictSink: &dictSink{names: []string{"", "{app=a}", "{app=b}"}}, unwind: unwind, id: 1}
				w := mustSink(t, d, &slab.Options{SlabBytes: 1024, SlabCount: 2, Crash: &slab.Crash{Dir: t.TempDir(), Required: true}, WhenFull: slab.Block(), OnError: ev.add})
				d.locked = func() bool {
					for end := time.Now().Add(time.Second); time.Now().Before(end); runtime.Gosched() {
						if w.front.mu.TryLock() { // the consumer may still hold the lock
							w.front.mu.Unlock()
							return false
						}
					}
					return true
				}
				for i := range 30 {
					if err := w.WriteRecord(line(i, size), batch.Meta{Stream: uint32(1 + i%2)}); err != nil {
						t.Error(err)
					}
				}
				closeNow(t, w)
				checkAccount(t, w, 30, 30, batch.Drops{})
				if got := ev.count("crash-safe", "stream 1"); got != 1 || ev.count("crash-safe", "") != 1 {
					t.Errorf("reported %d times: %v", got, ev.all)
				}
			})
		}
	}
}

// If Stream panics or ends the goroutine for a definition, the records of that stream count as
// corrupt, and their file is set aside. All other records are delivered.
func TestStreamUnwinds(t *testing.T) {
	for name, unwind := range unwinds {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			keepStreams(t, dir, &dictSink{names: []string{"{app=a}", "{app=b}", "{app=c}"}}, func(w *pump) {
				for i := range 30 {
					_ = w.WriteRecord(line(i, 100), batch.Meta{Stream: uint32(i % 3)})
				}
			})
			path := oneFile(t, dir)
			var ev events
			d := &badDict{dictSink: &dictSink{names: []string{"", "{app=c}", "{app=a}"}}, unwind: unwind, id: 99, def: "{app=b}"}
			w := mustSink(t, d, &slab.Options{Crash: &slab.Crash{Dir: dir, Required: true}, OnError: ev.add})
			_ = w.WriteRecord(line(30, 100), batch.Meta{Stream: 2})
			closeNow(t, w)
			w.awaitEvents(t.Context())
			for _, g := range d.got {
				i := numbers(t, g[strings.Index(g, ":")+1:])[0]
				if want := []string{"{app=a}:", "{app=b}:", "{app=c}:"}[i%3]; !strings.HasPrefix(g, want) {
					t.Errorf("got %.20q", g)
				}
			}
			s := w.Stats()
			if s.Recovered != 30 || s.Delivered != 21 || s.Dropped != drops(batch.Corrupt, 10) || s.Check() != nil ||
				s.Recovery.Undefined != 10 || s.Recovery.Records != 20 || s.Recovery.DamagedFiles != 1 {
				t.Errorf("%v, %+v", s.Account, s.Recovery)
			}
			if ev.count("recover", "Stream of the dictionary") != 1 {
				t.Error(ev.all)
			}
			if _, err := os.Stat(path + crashfile.BadSuffix); err != nil {
				t.Error(err)
			}
		})
	}
}

type badForm struct {
	lines
	unwind func()
}

func (c badForm) ContentType() string { c.unwind(); return "" }

type badSchema struct {
	lines
	unwind func()
}

func (c badSchema) SchemaVersion() uint32 { c.unwind(); return 0 }

// If a method of the codec panics or ends the goroutine, New fails and leaves no file. If
// Crash.Codec does so for a file, the file stays.
func TestFormUnwinds(t *testing.T) {
	for name, unwind := range unwinds {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, c := range []batch.Codec{badForm{unwind: unwind}, badSchema{unwind: unwind}} {
				if _, err := newPump(consumerFor(&memory{}), &slab.Options{Codec: c, Crash: &slab.Crash{Dir: dir}}); err == nil || !strings.Contains(err.Error(), "Options.Codec") {
					t.Errorf("%T: %v", c, err)
				}
			}
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}

			g := newGate()
			w := crashWriter(t, dir, g, slab.Options{Codec: kind{name: "other"}, CloseTimeout: 1})
			mustWrite(t, w, 0, 100)
			w.Close()
			g.open()
			<-w.done
			path := oneFile(t, dir)
			var ev events
			w = mustNew(t, &memory{}, &slab.Options{OnError: ev.add, Crash: &slab.Crash{Dir: dir, Required: true,
				Codec: func(string, uint32) (batch.Codec, bool) { unwind(); return nil, false }}})
			closeNow(t, w)
			if oneFile(t, dir) != path || ev.count("recover", "Crash.Codec") != 1 {
				t.Error(ev.all)
			}
		})
	}
}
