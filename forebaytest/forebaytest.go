// Package forebaytest captures the records logged in a test.
//
//	func TestTransfer(t *testing.T) {
//		rec := forebaytest.New(t)
//		NewBank(rec.Logger()).Transfer("alice", "bob", 100)
//		rec.Want(slog.LevelInfo, "transferred", "to", "bob", "amount", 100)
//		rec.None(slog.LevelWarn)
//	}
//
// A [Recorder] captures records of a forebay.Logger, of its slog.Logger, and of any logger that
// writes lines of JSON, logfmt or text, such as zap, zerolog and the standard log. If a program
// makes its own Logger, add the Recorder as an output:
//
//	log, err := forebay.New(append(outputs, forebay.Writer(rec, forebay.Level(slog.LevelDebug)))...)
//
// The records are the same as for other outputs: redacted, with the attributes of With and of the
// context. If the test fails, all captured records are logged.
//
//	Logger ─▶ Recorder ─▶ Records, Want, Wait, None
//	             └─▶ t.Log, if the test fails
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

// A Recorder stores the records of one test in memory. All methods except Wait are safe for
// concurrent use. A record is captured before the call that logs it returns.
//
// Records logged after the end of the test are not captured. The first of them is written to
// standard error with the stack of its goroutine.
type Recorder struct {
	t      testing.TB
	log    *forebay.Logger
	stderr io.Writer // os.Stderr, except in tests of this package

	mu      sync.Mutex
	records []Record      // in the order of capture; elements are not changed
	changed chan struct{} // closed and replaced when a record is captured
	stage   stage
}

// A stage is the state of the test of a Recorder.
//
//	running ──end of the test──▶ ended ──a record is logged──▶ reported
type stage uint8

const (
	running  stage = iota // records are captured
	ended                 // the next record is reported
	reported              // records are dropped
)

// New returns a Recorder for t. It need not be closed.
func New(t testing.TB) *Recorder {
	t.Helper()
	r := &Recorder{t: t, stderr: os.Stderr, changed: make(chan struct{})}
	r.log = r.Logger()
	// The method end runs after the test function has returned, so that records logged later are
	// reported.
	t.Cleanup(r.end)
	return r
}

// encoder is the default encoder of a Recorder that is an output of a Router.
var encoder = encode.JSON(&encode.Options{AddSource: true, Caller: "short"})

// Encoder returns the encoder that a Router uses if the output has no option Encoder: JSON with the
// source position of each call.
func (r *Recorder) Encoder() encode.Encoder { return encoder }

// end is called at the end of the test. If the test has failed, end logs the captured records.
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

// Logger returns a Logger whose records of all levels are captured, with the source position of
// each call. Without options it always returns the same Logger. With options, such as
// forebay.RedactKeys or forebay.Context, it returns a new one; an invalid option fails the test
// with t.Fatal.
func (r *Recorder) Logger(opts ...forebay.Option) *forebay.Logger {
	r.t.Helper()
	if len(opts) == 0 && r.log != nil {
		return r.log
	}
	router, err := forebay.NewRouter(append(slices.Clip(opts), forebay.Writer(r, forebay.Level(slog.Level(math.MinInt32))))...)
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	return router.Logger()
}

// Write captures the output of another logger. p is one line of JSON or logfmt, several lines of
// JSON, or the text of one record. Time, level, message and source are recognized by the names that
// common loggers use. A record without a level has slog.LevelInfo. Write does not retain p, and its
// error is always nil.
func (r *Recorder) Write(p []byte) (int, error) {
	r.add(parse(p))
	return len(p), nil
}

// WriteRecord captures the record p, whose level and time are in m. Because a Recorder has this
// method, forebay.Writer makes it a buffered output.
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

// add stores captured records, or reports them if the test has ended.
func (r *Recorder) add(records []Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch r.stage {
	case running:
		r.records = append(r.records, records...)
		close(r.changed)
		r.changed = make(chan struct{})
	case ended:
		r.stage = reported
		// After the end of the test, t.Log and t.Error would panic and end the process.
		fmt.Fprintf(r.stderr, "forebaytest: logged after the end of %s:%s\n%s", r.t.Name(), indented(records), debug.Stack())
	}
}

// Records returns the records captured so far, in the order of their capture. The caller owns the
// slice.
func (r *Recorder) Records() []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.records)
}

// Want returns the first record with the given level and message and at least the given attributes.
// If there is none, it calls t.Error with the most similar record, and returns a zero Record.
//
// args are attributes or alternating keys and values, as in slog.Logger.Log. They are compared in
// their JSON form: 200 equals int64(200), and an error equals its text. A group or object may be
// given as a whole, or by keys with dots, as in Record.Attrs.
func (r *Recorder) Want(level slog.Level, msg string, args ...any) Record {
	r.t.Helper()
	want := r.patternFor(level, msg, args)
	records := r.Records()
	if i := slices.IndexFunc(records, want.matches); i >= 0 {
		return records[i]
	}
	r.t.Errorf("no record%s", want.explain(records))
	return Record{}
}

// Wait is like [Recorder.Want], but waits until such a record is captured. If that does not happen
// within the timeout, it calls t.Fatal, so Wait must be called from the goroutine of the test.
func (r *Recorder) Wait(timeout time.Duration, level slog.Level, msg string, args ...any) Record {
	r.t.Helper()
	want := r.patternFor(level, msg, args)
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for seen := 0; ; { // the first seen records do not match
		r.mu.Lock()
		records, more := r.records, r.changed
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

// None calls t.Error with all captured records of the given level or above, if there are any.
func (r *Recorder) None(level slog.Level) {
	r.t.Helper()
	found := slices.DeleteFunc(r.Records(), func(rec Record) bool { return rec.Level < level })
	if len(found) > 0 {
		r.t.Errorf("%d records of %v or above:%s", len(found), level, indented(found))
	}
}

// indented returns the records as text, each on a separate indented line.
func indented(records []Record) string {
	var sb strings.Builder
	for _, rec := range records {
		sb.WriteString("\n    " + rec.line())
	}
	return sb.String()
}
