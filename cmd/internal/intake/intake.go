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
	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/internal/values"
)

// ErrStopped is the error of a read after the program was asked to stop.
var ErrStopped = errors.New("stopped")

// An Intake parses, transforms and encodes lines, one at a time, and passes them to the outputs. An
// inlet whose input has several goroutines has several intakes.
type Intake struct {
	In *Inlet

	Mu       sync.Mutex // held while a line is processed; guards the fields below
	kept     *readahead.File
	parser   record.Parser
	unparsed uint64 // value of parser.Unparsed at the last Publish
	Outs     []feed
	forms    []*form
	common   *setting.Level // level of all outputs; nil if the levels differ
	marks    []mark         // marks[i] belongs to Outs[i]

	chain        *transform.Chain // nil without transforms
	Parse        bool             // lines must be parsed
	ev           record.Event
	extra        []slog.Attr // time and level from the input that the line does not contain, followed by ev.More
	arrivalAttrs []slog.Attr // scratch memory of arrived
	terminated   []byte      // scratch memory for a line with an added newline
}

// NewIntake returns a new intake. The outputs of the pipeline must not change during the call.
func (in *Inlet) NewIntake() *Intake {
	take := &Intake{In: in}
	take.Wire()
	in.Intakes = append(in.Intakes, take)
	return take
}

// from sets the read-ahead file that contains the following lines. kept is nil without such a file.
func (take *Intake) from(kept *readahead.File) {
	take.kept, take.marks = kept, marks(take.Outs, kept)
}

// Wire connects the intake with its outputs and applies the settings of the inlet.
func (take *Intake) Wire() {
	take.Publish()
	take.parser, take.unparsed = take.In.Reading.Parser(), 0
	take.Parse, take.chain = false, nil
	if take.In.chain != nil {
		take.chain, take.Parse = take.In.chain.Clone(), true
	}
	take.feeds()
	take.from(take.kept)
	take.common = commonLevel(take.Outs)
	for i := range take.Outs {
		out := &take.Outs[i]
		take.Parse = take.Parse || out.Spec.Level().Given || out.Spec.Route.Where != nil || out.form != nil || out.Encode != nil || out.Target.SendsMeta
	}
}

// Hold locks the intake until release is called, so that no lines are processed. If ctx is done
// while the current line waits for memory, Hold returns an error.
func (take *Intake) Hold(ctx context.Context) (release func(), err error) {
	held := make(chan struct{})
	go func() {
		take.Mu.Lock()
		select {
		case held <- struct{}{}:
		case <-ctx.Done():
			take.Mu.Unlock()
		}
	}()
	select {
	case <-held:
		return take.Mu.Unlock, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Publish adds the counter of the parser to the counters of the inlet.
func (take *Intake) Publish() {
	take.In.unparsed.Add(take.parser.Unparsed - take.unparsed)
	take.unparsed = take.parser.Unparsed
}

// TooLong counts a line that is longer than --max-record. at is the offset of its end.
func (take *Intake) TooLong(at int64) {
	take.In.Oversize.Add(1)
	for i := range take.Outs {
		if out := &take.Outs[i]; take.marks[i].wants(at) {
			take.marks[i].noteOversize(out.Output, out.Delivery.Refuse(nil, batch.Meta{}, batch.Oversize, nil))
		}
	}
}

// Put counts a record and passes it to the outputs. It is for inputs that store their own
// positions. For a record longer than --max-record, tooLong is its length and text is ignored;
// otherwise tooLong is 0. Put reports whether the outputs still accept records.
func (take *Intake) Put(text []byte, tooLong int64, k Hints) (open bool) {
	take.Mu.Lock()
	defer take.Mu.Unlock()
	take.In.Records.Add(1)
	if tooLong > 0 {
		take.In.Bytes.Add(uint64(tooLong))
		take.TooLong(0)
		return true
	}
	take.In.Bytes.Add(uint64(len(text)))
	defer take.Publish()
	return take.Line(text, Place{}, k)
}

// KeptText is the largest buffer that an intake keeps between lines, in bytes.
const KeptText = 64 << 10

// Hints is information about a line that comes from the input, such as a syslog header, and not
// from the text of the line.
type Hints struct {
	DefaultTime  time.Time   // used if the line contains no time
	Time         time.Time   // has precedence over the time in the line
	DefaultLevel *slog.Level // used if the line contains no level; nil if unknown
	Level        *slog.Level // has precedence over the level in the line; nil if unknown
	Attrs        []slog.Attr
}

// PartialLine is the field of a line that was delivered before its end arrived.
var PartialLine = []slog.Attr{slog.Bool("partial", true)}

// A Place is the position of a line in a read-ahead file.
type Place struct {
	end  int64 // offset of the end of the line
	safe int64 // when the line is accepted, all input before this offset is
}

// Line passes a line to the outputs and reports whether they still accept records.
func (take *Intake) Line(line []byte, at Place, k Hints) (open bool) {
	ev := &take.ev
	var meta batch.Meta
	var now int64
	limited := false
	if take.Parse {
		take.parser.Parse(line, ev)
		ev.More = k.Attrs
		take.extra = take.extra[:0]
		if k.Level == nil && !ev.HasLevel {
			k.Level = k.DefaultLevel
		}
		if ev.Format != record.Text { // for text the encoder adds time and level
			if !k.Time.IsZero() && ev.Time.IsZero() {
				take.extra = append(take.extra, slog.Time("time", k.Time.UTC()))
			}
			if k.Level != nil && !ev.HasLevel {
				take.extra = append(take.extra, slog.String("level", values.LevelName(*k.Level)))
			}
		}
		if k.Level != nil {
			ev.Level, ev.HasLevel = *k.Level, true
		}
		switch {
		case take.In.Reading.Times == TimeOfNow:
			ev.Time = time.Now()
		case !k.Time.IsZero():
			ev.Time = k.Time
		case ev.Time.IsZero() && !k.DefaultTime.IsZero():
			take.setTime(ev, k.DefaultTime)
		}
		if ev.Time.IsZero() && take.In.Reading.Times == TimeOfBoth {
			take.setArrival(ev)
		}
		if take.chain != nil {
			switch take.chain.Apply(ev) {
			case transform.Removed:
				take.In.removed.Add(1)
				return true
			case transform.Limited:
				limited = true
			}
			if line = ev.Raw; len(take.extra) > 0 {
				take.removeParsed(ev)
			}
		}
		if take.common != nil && !take.common.Admits(ev) {
			take.In.filtered.Add(1)
			return true
		}
		meta = record.Meta(ev)
		for _, f := range take.forms {
			f.ready = false
		}
		if len(take.extra) > 0 {
			take.extra = append(take.extra, ev.More...)
		}
	}
	open = true
	for i := range take.Outs {
		out := &take.Outs[i]
		if !take.marks[i].wants(at.end) {
			continue
		}
		if take.common == nil && !out.level.Admits(ev) {
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
				as := *ev // the JSON is nested too deeply for the destination: encode it as text
				as.Format = record.Text
				rec, m, err = out.Encode(out.rec[:0], &as)
			}
			if out.rec = rec; cap(rec) > KeptText {
				out.rec = nil
			}
		case out.form != nil:
			more := ev.More
			if len(take.extra) > 0 {
				ev.More = take.extra
			}
			rec, err = out.form.line(ev)
			ev.More = more
		case out.keeps && line[len(line)-1] != '\n':
			// A line without a newline would merge with the first line of the next run.
			take.terminated = append(append(take.terminated[:0], line...), '\n')
			rec = take.terminated
		}
		if err != nil {
			take.marks[i].note(out.Output, at.safe, out.Delivery.Refuse(record.TrimEnd(line), meta, batch.Encode, fmt.Errorf("cannot encode it: %w", err)))
			continue
		}
		if out.Encode == nil && out.Retries && (!out.Target.SendsMeta || m.Time == 0) {
			// --retry-age starts now and not at the time in the line, unless the destination shows
			// that time.
			if now == 0 {
				now = time.Now().UnixNano()
			}
			m.Time = now
		}
		err = out.Delivery.WriteRecord(rec, m) // WriteRecord counts dropped records
		open = open && !errors.Is(err, batch.ErrClosed)
		take.marks[i].note(out.Output, at.safe, err)
	}
	return open
}

// setTime sets the time of a line that contains none.
func (take *Intake) setTime(ev *record.Event, at time.Time) {
	ev.Time = at
	if ev.Format != record.Text { // for text the encoder adds the time
		take.extra = append(take.extra, slog.Time("time", at.UTC()))
	}
}

// setArrival sets the time of a line that contains none to the current time, and adds a field that
// marks it as the time of arrival.
func (take *Intake) setArrival(ev *record.Event) {
	take.setTime(ev, time.Now())
	take.arrivalAttrs = append(append(take.arrivalAttrs[:0], ev.More...), slog.String("time_from", "arrival"))
	ev.More = take.arrivalAttrs
}

// removeParsed removes from extra the fields that a transform has added to the line itself.
func (take *Intake) removeParsed(ev *record.Event) {
	var parsed record.Event
	take.parser.ParseAs(ev.Format, ev.Raw, len(ev.Line), &parsed)
	take.extra = slices.DeleteFunc(take.extra, func(a slog.Attr) bool {
		return a.Key == slog.LevelKey && parsed.HasLevel || a.Key == slog.TimeKey && !parsed.Time.IsZero()
	})
}

// A feed is an output of an intake.
type feed struct {
	*output.Output
	Encode dest.EncodeFunc // encoder of the target; nil if form is used or lines are unchanged
	rec    []byte          // scratch memory of Encode
	form   *form           // shared encoder; nil if Encode is used or lines are unchanged
	level  *setting.Level  // level of the output
	keeps  bool            // undelivered lines can be kept for the next run
}

// A form is an encoding of lines whose result several outputs share.
type form struct {
	enc   *record.Encoder
	ready bool // rec and err belong to the current line
	rec   []byte
	err   error
}

// line returns the encoded event. It encodes each event once.
func (f *form) line(ev *record.Event) ([]byte, error) {
	if !f.ready {
		f.rec, f.err = f.enc.Encode(ev)
		f.ready = true
	}
	return f.rec, f.err
}

// feeds sets the outputs of the intake and the forms that they share.
func (take *Intake) feeds() {
	take.Outs, take.forms = nil, nil
	by := map[record.Encoding]*form{}
	for _, out := range take.In.Outs() {
		f := feed{Output: out, level: out.Spec.Level(), keeps: out.Spec.KeepsLines()}
		if out.Target.NewEncoder != nil {
			f.Encode = out.Target.NewEncoder()
		} else if as := out.Spec.Encoding(); as != record.AsRaw {
			if by[as] == nil {
				by[as] = &form{enc: record.NewEncoder(as)}
				take.forms = append(take.forms, by[as])
			}
			f.form = by[as]
		}
		take.Outs = append(take.Outs, f)
	}
}

// commonLevel returns the level of all outputs, or nil if the levels differ.
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

// A Text describes how the bytes of an input are divided into records.
type Text struct {
	Charset *charset.Charset // nil means UTF-8
	Join    *join.Rules      // combines lines to records; nil if each line is a record
}

// Consume reads lines from r and passes them on until r ends.
//
// If r is a read-ahead file, kept is the same file; otherwise kept is nil. wait waits up to a
// duration for input, and reports whether a Read would return without blocking; nil means that Read
// never blocks. torn means that the input began within a line, because a killed run had read its
// beginning; the last line is marked as partial if it has no newline.
func (take *Intake) Consume(r io.Reader, kept *readahead.File, text Text, wait func(time.Duration) bool, torn bool) error {
	jd := newLineJoiner(take, text.Join, kept != nil)
	if jd != nil && kept != nil {
		r = heldFile{kept, jd}
	}
	src := lines.New(r, take.In.Env.MaxRecord)
	src.Charset = text.Charset
	var records int
	var before int64
	held := false
	hold := func() {
		if !held {
			take.Mu.Lock()
			held = true
		}
	}
	publish := func() { // once per read, because it costs more than finding the end of a line
		if jd != nil {
			records, jd.records = records+jd.records, 0
		}
		take.In.Records.Add(uint64(records))
		take.In.Bytes.Add(uint64(src.Offset() - before))
		records, before = 0, src.Offset()
		if held {
			take.Publish()
			take.Mu.Unlock()
			held = false
		}
	}
	hold()
	take.from(kept)
	src.BeforeRead = publish
	if jd != nil {
		src.BeforeRead = func() {
			jd.release(src.Offset(), wait, hold, publish)
			publish()
		}
	}
	defer publish()
	for {
		start := src.Offset()
		line, err := src.Next()
		hold()
		at := src.Offset()
		if err != nil {
			switch {
			case lines.IsTooLong(err):
				records++
				take.TooLong(at)
				continue
			case jd != nil:
				jd.flush()
			}
			if kept != nil {
				kept.Settle(at, false) // includes lines that no output has selected
			}
			if err == io.EOF || errors.Is(err, ErrStopped) {
				return nil
			}
			return err
		}
		var k Hints
		if torn && line[len(line)-1] != '\n' {
			take.In.Env.Console.Say("%s", take.In.Of(errors.New("standard input: an earlier run had read part of a line; it is delivered with the field partial=true")))
			k.Attrs = PartialLine
		}
		if jd != nil {
			jd.attrs = k.Attrs
			jd.line(line, start, at)
			continue
		}
		records++
		take.Line(line, Place{at, at}, k)
	}
}
