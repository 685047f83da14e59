// Package forebaytest captures what is logged in a test.
//
//	func TestTransfer(t *testing.T) {
//		rec := forebaytest.New(t)
//		NewBank(rec.Logger()).Transfer("alice", "bob", 100)
//		rec.Want(slog.LevelInfo, "transferred", "to", "bob", "amount", 100)
//		rec.None(slog.LevelWarn)
//	}
//
// A [Recorder] takes records from a forebay.Logger, from the slog.Logger of that, and
// from any logger that writes lines of JSON, logfmt or text, such as zap, zerolog and the
// standard log. A program that makes its own Logger is given one output more:
//
//	log, err := forebay.New(append(outputs, forebay.Output(slog.LevelDebug, rec))...)
//
// The records are those of the outputs: redacted, with the attributes of With and of the
// context. If the test fails, all of them are shown.
package forebaytest

import (
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
)

// A Recorder keeps the records of one test in memory. All methods may be called from any
// goroutine, except Wait. A record is captured when the call that logs it returns.
//
// A record that comes after the end of the test is not captured. The first of them is
// written to standard error with the stack of its goroutine.
type Recorder struct {
	t    testing.TB
	log  *forebay.Logger
	late io.Writer // standard error

	mu      sync.Mutex
	records []Record
	more    chan struct{} // closed when a record comes
	stage   stage
}

// stage is where the test of a Recorder is.
//
//	running ──end of the test──▶ ended ──a record comes──▶ told
type stage uint8

const (
	running stage = iota // records are captured
	ended                // the next record is reported
	told                 // records are dropped
)

// New returns a Recorder for t. It needs no Close.
func New(t testing.TB) *Recorder {
	t.Helper()
	r := &Recorder{t: t, late: os.Stderr, more: make(chan struct{})}
	r.log = r.Logger()
	t.Cleanup(r.end)
	return r
}

var encoder = encode.JSON(&encode.Options{AddSource: true, Caller: "short"})

// Encoder returns the encoder of an output that was given none: JSON with the source
// position of each call.
func (r *Recorder) Encoder() encode.Encoder { return encoder }

// end shows the records if the test has failed.
func (r *Recorder) end() {
	r.t.Helper()
	r.mu.Lock()
	records := r.records
	r.stage = ended
	r.mu.Unlock()
	if !r.t.Failed() {
		return
	}
	if len(records) == 0 {
		r.t.Log("nothing was logged")
		return
	}
	r.t.Logf("%d records were logged:%s", len(records), indented(records))
}

// Logger returns a Logger whose records of all levels are captured, with the source
// position of each call. With options, such as forebay.RedactKeys or forebay.Context, it is
// one of its own, and an option that is wrong ends the test.
func (r *Recorder) Logger(opts ...forebay.Option) *forebay.Logger {
	r.t.Helper()
	if len(opts) == 0 && r.log != nil {
		return r.log
	}
	router, err := forebay.NewRouter(append(slices.Clip(opts), forebay.Output(slog.Level(math.MinInt32), r))...)
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	return router.Logger()
}

// Write captures what another logger writes. p is one line of JSON or logfmt, several
// lines of JSON, or the text of one record. The time, the level, the message and the
// source are found by the names that common loggers give them. Without a level the
// record is of slog.LevelInfo.
func (r *Recorder) Write(p []byte) (int, error) {
	r.add(parse(p))
	return len(p), nil
}

// WriteRecord makes the Recorder a buffered output of a forebay.Router, to which several
// goroutines write at a time. m has the level and the time of the record p.
func (r *Recorder) WriteRecord(p []byte, m batch.Meta) error {
	records := parse(p)
	for i := range records {
		records[i].Level = m.Level
		if m.Time != 0 {
			records[i].Time = time.Unix(0, m.Time)
		}
	}
	r.add(records)
	return nil
}

func (r *Recorder) add(records []Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch r.stage {
	case running:
		r.records = append(r.records, records...)
		close(r.more)
		r.more = make(chan struct{})
	case ended:
		r.stage = told
		// Neither Log nor Error may be called now: they would end the process.
		fmt.Fprintf(r.late, "forebaytest: logged after the end of %s:%s\n%s", r.t.Name(), indented(records), debug.Stack())
	}
}

// Records returns the records captured so far, in the order of their capture.
func (r *Recorder) Records() []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.records)
}

// Want returns the first record with that level and message and at least these
// attributes. If there is none the test fails and the error shows the nearest record; the
// Record is then zero.
//
// args are attributes or alternate keys and values, as in slog.Logger.Log, and are
// compared in the form that JSON has for them: 200 equals int64(200), an error its text.
// A group or object may be given as such or by keys with dots, as in Record.Attrs.
func (r *Recorder) Want(level slog.Level, msg string, args ...any) Record {
	r.t.Helper()
	want := r.wanted(level, msg, args)
	records := r.Records()
	if i := slices.IndexFunc(records, want.matches); i >= 0 {
		return records[i]
	}
	r.t.Errorf("no record%s", want.explain(records))
	return Record{}
}

// Wait is like [Recorder.Want], but waits until such a record comes. If none does within
// the timeout, the test ends at once, so Wait must be called from the goroutine of the
// test.
func (r *Recorder) Wait(timeout time.Duration, level slog.Level, msg string, args ...any) Record {
	r.t.Helper()
	want := r.wanted(level, msg, args)
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for seen := 0; ; {
		r.mu.Lock()
		records, more := r.records, r.more
		r.mu.Unlock()
		for ; seen < len(records); seen++ {
			if want.matches(records[seen]) {
				return records[seen]
			}
		}
		select {
		case <-more:
		case <-timer.C:
			r.t.Fatalf("within %v no record%s", timeout, want.explain(records))
			return Record{}
		}
	}
}

// None fails the test if a record of that level or a higher one has been captured, and
// shows all of them.
func (r *Recorder) None(level slog.Level) {
	r.t.Helper()
	found := slices.DeleteFunc(r.Records(), func(rec Record) bool { return rec.Level < level })
	if len(found) > 0 {
		r.t.Errorf("%d records of %v or above:%s", len(found), level, indented(found))
	}
}

// indented returns one line for each record, each after a newline.
func indented(records []Record) string {
	var sb strings.Builder
	for _, rec := range records {
		sb.WriteString("\n    " + rec.line())
	}
	return sb.String()
}
