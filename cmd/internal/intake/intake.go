package intake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/charset"
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/join"
	"github.com/forebay-log/forebay/cmd/internal/lines"
	"github.com/forebay-log/forebay/cmd/internal/output"
	"github.com/forebay-log/forebay/cmd/internal/readahead"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/cmd/internal/transform"
	"github.com/forebay-log/forebay/internal/outputhook"
	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/internal/values"
)

// ErrStopped is returned by reads after the program was stopped.
var ErrStopped = errors.New("stopped")

// An Intake parses, transforms and encodes lines, one at a time, and passes them to the outputs. If
// several goroutines read an input, each has an intake.
type Intake struct {
	In *Inlet

	Mu             sync.Mutex // guards the fields below; held while the lines of a read are processed
	kept           *readahead.File
	parser         record.Parser
	records, bytes uint64    // numbers of records and bytes that the inlet has not counted yet
	arrived        time.Time // time of arrival of the last line of this read; zero until it is needed
	Outs           []feed
	forms          []*form
	common         *setting.Level  // level of all outputs; nil if their levels differ
	aheadPositions []aheadPosition // positions of the outputs in the read-ahead file

	chain        *transform.Chain // nil if there are no transforms
	Parse        bool             // an output or a transform needs the parsed line
	ev           record.Event
	extra        []slog.Attr // time and level that the line does not contain, followed by the attributes in ev.More
	arrivalAttrs []slog.Attr // scratch memory of the method setArrival
	terminated   []byte      // scratch memory for lines to which a newline is added
}

// NewIntake returns a new intake of the inlet. The outputs of the pipeline must not change during
// the call.
func (in *Inlet) NewIntake() *Intake {
	intake := &Intake{In: in}
	intake.Wire()
	in.Intakes = append(in.Intakes, intake)
	return intake
}

// setReadAhead sets the read-ahead file that stores the following lines; nil means that no file
// does.
func (intake *Intake) setReadAhead(kept *readahead.File) {
	intake.kept, intake.aheadPositions = kept, aheadPositions(intake.Outs, kept)
}

// Wire connects the intake with the current outputs and applies the current settings of the inlet.
// All callers except NewIntake hold Mu.
func (intake *Intake) Wire() {
	intake.publish()
	intake.parser = intake.In.Reading.Parser()
	intake.Parse, intake.chain = false, nil
	if intake.In.chain != nil {
		intake.chain, intake.Parse = intake.In.chain.Clone(), true
	}
	intake.feeds()
	intake.setReadAhead(intake.kept)
	intake.common = commonLevel(intake.Outs)
	for i := range intake.Outs {
		out := &intake.Outs[i]
		intake.Parse = intake.Parse || out.Spec.Level().Given || out.Spec.Route.Where != nil || out.form != nil || out.Encode != nil || out.Target.SendsMeta
	}
}

// Hold locks the intake after the current read, so that no line is processed until release is
// called. If ctx is done while a line waits for memory, Hold returns an error.
func (intake *Intake) Hold(ctx context.Context) (release func(), err error) {
	locked := make(chan struct{})
	go func() {
		intake.Mu.Lock()
		select {
		case locked <- struct{}{}:
		case <-ctx.Done():
			intake.Mu.Unlock()
		}
	}()
	select {
	case <-locked:
		return intake.Mu.Unlock, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Begin locks the intake for the lines of one read of the input. The caller calls End before it
// waits for further input.
func (intake *Intake) Begin() { intake.Mu.Lock() }

// End updates the counters of the inlet and unlocks the intake.
func (intake *Intake) End() {
	intake.publish()
	intake.arrived = time.Time{}
	intake.Mu.Unlock()
}

// publish updates the counters of the inlet. It is called only once per read, because it is slower
// than finding the end of a line. The caller holds Mu.
func (intake *Intake) publish() {
	intake.In.Records.Add(intake.records)
	intake.In.Bytes.Add(intake.bytes)
	intake.In.unparsed.Add(intake.parser.Unparsed)
	intake.records, intake.bytes, intake.parser.Unparsed = 0, 0, 0
}

// now returns the time of arrival of the current line: the time at which it is needed first, and 1
// ns more for each later call until End. Therefore lines have different times, by which Loki
// distinguishes lines with equal text.
func (intake *Intake) now() time.Time {
	if intake.arrived.IsZero() {
		intake.arrived = time.Now().Round(0)
	} else {
		intake.arrived = intake.arrived.Add(1)
	}
	return intake.arrived
}

// TooLong counts a line that exceeds --max-record. at is the offset of the end of the line. The
// caller holds Mu.
func (intake *Intake) TooLong(at int64) {
	intake.In.Oversize.Add(1)
	for i := range intake.Outs {
		if out := &intake.Outs[i]; intake.aheadPositions[i].wants(at) {
			intake.aheadPositions[i].recordOversize(out.Output, outputhook.Refuse(out.Delivery, nil, batch.Meta{}, batch.Oversize, nil))
		}
	}
}

// Put passes a single record to the outputs, like Add between Begin and End.
func (intake *Intake) Put(text []byte, tooLong int64, k *Hints) (open bool) {
	intake.Begin()
	defer intake.End()
	return intake.Add(text, tooLong, k)
}

// Add counts a record and passes it to the outputs. It is for inputs that store their own
// positions. If the record exceeds --max-record, tooLong is its length and text is ignored. For
// other records tooLong is 0. open reports whether all outputs accept further records. The caller
// has called Begin.
func (intake *Intake) Add(text []byte, tooLong int64, k *Hints) (open bool) {
	intake.records++
	if tooLong > 0 {
		intake.bytes += uint64(tooLong)
		intake.TooLong(0)
		return true
	}
	intake.bytes += uint64(len(text))
	return intake.Line(text, Place{}, k)
}

// KeptText is the maximum size of a buffer that an intake keeps for the next line, in bytes.
const KeptText = 64 << 10

// Hints contains data about a line that the input has received separately from the line, such as a
// syslog header.
type Hints struct {
	DefaultTime  time.Time   // used if the line contains no time
	Time         time.Time   // has precedence over the time in the line
	DefaultLevel *slog.Level // used if the line contains no level; nil if unknown
	Level        *slog.Level // has precedence over the level in the line; nil if unknown
	Attrs        []slog.Attr
}

// PartialLine marks a line that was delivered before its end has arrived.
var PartialLine = []slog.Attr{slog.Bool("partial", true)}

// A Place is the position of a line in a read-ahead file. It is zero if there is no such file.
type Place struct {
	end  int64 // offset of the end of the line
	safe int64 // an output that has accepted the line no longer needs the input before this offset
}

// Line passes a line to the outputs. open reports whether all outputs accept further records. The
// caller holds Mu.
func (intake *Intake) Line(line []byte, at Place, k *Hints) (open bool) {
	ev := &intake.ev
	var meta batch.Meta
	limited := false
	if intake.Parse {
		intake.parser.Parse(line, ev)
		ev.More = k.Attrs
		intake.extra = intake.extra[:0]
		level := k.Level
		if level == nil && !ev.HasLevel {
			level = k.DefaultLevel
		}
		if ev.Format != record.Text { // for text, the encoder adds time and level
			at := ev.Time
			if !k.Time.IsZero() {
				at = k.Time
			}
			if !at.IsZero() && !ev.HasTimeField() {
				intake.extra = append(intake.extra, slog.Time("time", at.UTC()))
			}
			if level != nil && !ev.HasLevel {
				intake.extra = append(intake.extra, slog.String("level", values.LevelName(*level)))
			}
		}
		if level != nil {
			ev.Level, ev.HasLevel = *level, true
		}
		switch {
		case intake.In.Reading.Times == TimeOfNow:
			ev.Time = intake.now()
		case !k.Time.IsZero():
			ev.Time = k.Time
		case ev.Time.IsZero() && !k.DefaultTime.IsZero():
			intake.setTime(ev, k.DefaultTime)
		}
		if ev.Time.IsZero() && intake.In.Reading.Times == TimeOfBoth {
			intake.setArrival(ev)
		}
		if intake.chain != nil {
			switch intake.chain.Apply(ev) {
			case transform.Removed:
				intake.In.removed.Add(1)
				return true
			case transform.Limited:
				limited = true
			}
			if line = ev.Raw; len(intake.extra) > 0 {
				intake.removeParsed(ev)
			}
		}
		if intake.common != nil && !intake.common.Admits(ev) {
			intake.In.filtered.Add(1)
			return true
		}
		meta = record.Meta(ev)
		for _, f := range intake.forms {
			f.ready = false
		}
		if len(intake.extra) > 0 {
			intake.extra = append(intake.extra, ev.More...)
		}
	}
	open = true
	for i := range intake.Outs {
		out := &intake.Outs[i]
		if !intake.aheadPositions[i].wants(at.end) {
			continue
		}
		if intake.common == nil && !out.level.Admits(ev) {
			out.Below.Add(1)
			continue
		}
		if !out.Spec.Route.Where.Matches(ev) {
			out.Elsewhere.Add(1)
			continue
		}
		if limited {
			out.Limited.Add(1)
			continue
		}
		rec, m, err := line, meta, error(nil)
		switch {
		case out.Encode != nil:
			if rec, m, err = out.Encode(out.rec[:0], ev); err != nil && ev.Format != record.Text {
				as := *ev // encode JSON that is nested too deeply for the destination as text
				as.Format = record.Text
				rec, m, err = out.Encode(out.rec[:0], &as)
			}
			if out.rec = rec; cap(rec) > KeptText {
				out.rec = nil
			}
		case out.form != nil:
			more := ev.More
			if len(intake.extra) > 0 {
				ev.More = intake.extra
			}
			rec, err = out.form.line(ev)
			ev.More = more
		case out.keeps && line[len(line)-1] != '\n':
			// Add the newline. If the output keeps the line for the next run, that run would
			// otherwise append its first line to this line.
			intake.terminated = append(append(intake.terminated[:0], line...), '\n')
			rec = intake.terminated
		}
		if err != nil {
			intake.aheadPositions[i].record(out.Output, at.safe, outputhook.Refuse(out.Delivery, record.TrimEnd(line), meta, batch.Encode, fmt.Errorf("cannot encode it: %w", err)))
			continue
		}
		if out.Encode == nil && out.Retries && (!out.Target.SendsMeta || m.Time == 0) {
			// --retry-age is counted from m.Time. Set m.Time to the current time, unless the
			// destination shows it as the time of the record.
			m.Time = intake.now().UnixNano()
		}
		err = out.Delivery.WriteRecord(rec, m) // if it drops the record, it counts it
		open = open && !errors.Is(err, batch.ErrClosed)
		intake.aheadPositions[i].record(out.Output, at.safe, err)
	}
	return open
}

// setTime sets the time of a line that contains no time.
func (intake *Intake) setTime(ev *record.Event, at time.Time) {
	ev.Time = at
	if ev.Format != record.Text { // for text, the encoder adds the time
		intake.extra = append(intake.extra, slog.Time("time", at.UTC()))
	}
}

// setArrival sets the time of a line that contains no time to the current time. It adds a field
// that states this.
func (intake *Intake) setArrival(ev *record.Event) {
	intake.setTime(ev, intake.now())
	intake.arrivalAttrs = append(append(intake.arrivalAttrs[:0], ev.More...), slog.String("time_from", "arrival"))
	ev.More = intake.arrivalAttrs
}

// removeParsed removes the attributes time and level from intake.extra if the changed line contains
// a time or a level that the parser recognizes.
func (intake *Intake) removeParsed(ev *record.Event) {
	var parsed record.Event
	intake.parser.ParseAs(ev.Format, ev.Raw, len(ev.Line), &parsed)
	intake.extra = slices.DeleteFunc(intake.extra, func(a slog.Attr) bool {
		return a.Key == slog.LevelKey && parsed.HasLevel || a.Key == slog.TimeKey && parsed.HasTimeField()
	})
}

// A feed is an output that receives the lines of an intake.
type feed struct {
	*output.Output
	Encode dest.EncodeFunc // encoder of the destination; nil if form is set or lines are not encoded
	rec    []byte          // scratch memory for Encode
	form   *form           // shared encoding; nil if Encode is set or lines are not encoded
	level  *setting.Level  // level of the output
	keeps  bool            // the output can keep undelivered lines for the next run
}

// A form is an encoding that several outputs may use. It encodes each line once.
type form struct {
	enc   *record.Encoder
	ready bool // rec and err are the results for the current line
	rec   []byte
	err   error
}

// line returns the encoding of ev. The same event is encoded only once.
func (f *form) line(ev *record.Event) ([]byte, error) {
	if !f.ready {
		f.rec, f.err = f.enc.Encode(ev)
		f.ready = true
	}
	return f.rec, f.err
}

// feeds creates the feeds of the intake and the forms that they share.
func (intake *Intake) feeds() {
	intake.Outs, intake.forms = nil, nil
	byEncoding := map[record.Encoding]*form{}
	for _, out := range intake.In.Outs() {
		f := feed{Output: out, level: out.Spec.Level(), keeps: out.Spec.KeepsLines()}
		if out.Target.NewEncoder != nil {
			f.Encode = out.Target.NewEncoder()
		} else if as := out.Spec.Encoding(); as != record.AsRaw {
			if byEncoding[as] == nil {
				byEncoding[as] = &form{enc: record.NewEncoder(as)}
				intake.forms = append(intake.forms, byEncoding[as])
			}
			f.form = byEncoding[as]
		}
		intake.Outs = append(intake.Outs, f)
	}
}

// commonLevel returns the level of all outputs. If their levels differ, it returns nil.
func commonLevel(outs []feed) *setting.Level {
	l := new(setting.Level)
	for i, out := range outs {
		if i == 0 {
			l = out.Spec.Level()
		} else if *out.Spec.Level() != *l {
			return nil
		}
	}
	return l
}

// A Text describes how an input is divided into records.
type Text struct {
	Charset *charset.Charset // nil means UTF-8
	Join    *join.Rules      // rules that combine lines to records; nil if each line is a record
}

// Consume reads lines from r until it ends, and passes them to the outputs.
//
// If r is a read-ahead file, kept is the same file. If not, kept is nil. The function wait waits
// for input, at most for the given duration, and reports whether a Read would return without
// blocking. If wait is nil, Read never blocks. leftover reports that r contains the input of an
// earlier run. In this case the last line may be incomplete, and gets the field PartialLine.
func (intake *Intake) Consume(r io.Reader, kept *readahead.File, text Text, wait func(time.Duration) bool, leftover bool) error {
	joiner := newLineJoiner(intake, text.Join, kept != nil)
	if joiner != nil && kept != nil {
		r = heldFile{kept, joiner}
	}
	src := lines.New(r, intake.In.Env.MaxRecord)
	src.Charset = text.Charset
	var before int64
	locked := false
	lock := func() {
		if !locked {
			intake.Begin()
			locked = true
		}
	}
	publish := func() {
		if locked {
			intake.bytes += uint64(src.Offset() - before)
			before = src.Offset()
			intake.End()
			locked = false
		}
	}
	lock()
	intake.setReadAhead(kept)
	src.BeforeRead = publish
	if joiner != nil {
		src.BeforeRead = func() {
			joiner.release(src.Offset(), wait, lock, publish)
			publish()
		}
	}
	defer publish()
	for {
		start := src.Offset()
		line, err := src.Next()
		lock()
		at := src.Offset()
		if err != nil {
			switch {
			case lines.IsTooLong(err):
				intake.records++
				intake.TooLong(at)
				continue
			case joiner != nil:
				joiner.flush()
			}
			if kept != nil {
				kept.Settle(at, false) // needed for lines that no output receives
			}
			if err == io.EOF || errors.Is(err, ErrStopped) {
				return nil
			}
			return err
		}
		var k Hints
		if leftover && line[len(line)-1] != '\n' {
			intake.In.Env.Console.Say("%s", intake.In.WithName(errors.New("standard input: an earlier run had read part of a line; it is delivered with the field partial=true")))
			k.Attrs = PartialLine
		}
		if joiner != nil {
			joiner.attrs = k.Attrs
			joiner.line(line, start, at)
			continue
		}
		intake.records++
		intake.Line(line, Place{at, at}, &k)
	}
}
