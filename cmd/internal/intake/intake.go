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

// ErrStopped ends the input when the program was asked to stop.
var ErrStopped = errors.New("stopped")

// An Intake puts the lines of an inlet into the outputs, one after the other. An inlet
// that several goroutines read has several.
type Intake struct {
	In *Inlet

	Mu       sync.Mutex // held while it takes lines; what is below changes under it
	kept     *readahead.File
	parser   record.Parser
	unparsed uint64 // of parser, what the inlet knows
	Outs     []feed
	forms    []*form
	common   *setting.Level // of all outputs; nil: each has its own
	marks    []mark         // of the outputs

	chain *transform.Chain // nil: lines stay as they are
	Parse bool             // lines are looked into
	ev    record.Event
	told  []slog.Attr // what is known of the line and does not stand in it; empty: nothing more than ev.More
	more  []slog.Attr // memory of arrived
	ended []byte      // a line that was given its end
}

// NewIntake returns an intake for in. Those of a pipeline are made while nobody changes
// its outputs.
func (in *Inlet) NewIntake() *Intake {
	take := &Intake{In: in}
	take.Wire()
	in.Intakes = append(in.Intakes, take)
	return take
}

// from says that lines come from a file of input from now on; nil: from none.
func (take *Intake) from(kept *readahead.File) {
	take.kept, take.marks = kept, marks(take.Outs, kept)
}

// Wire connects the intake with the outputs of the pipeline that want its lines, and has
// it read as its inlet says.
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
		take.Parse = take.Parse || out.Spec.Level().Given || out.Spec.Route.Where != nil || out.form != nil || out.Encode != nil || out.Target.Header
	}
}

// Hold keeps the intake from taking lines until release. It gives up when ctx is done: a
// line may wait for room.
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

// Publish tells the inlet what the parser has counted.
func (take *Intake) Publish() {
	take.In.unparsed.Add(take.parser.Unparsed - take.unparsed)
	take.unparsed = take.parser.Unparsed
}

// TooLong counts a line above --max-record, which ends at offset at.
func (take *Intake) TooLong(at int64) {
	take.In.Oversize.Add(1)
	for i := range take.Outs {
		if out := &take.Outs[i]; take.marks[i].wants(at) {
			take.marks[i].noteOversize(out.Output, out.Delivery.Refuse(nil, batch.Meta{}, batch.Oversize, nil))
		}
	}
}

// Put takes a record of an input whose positions are its own, and counts it. tooLong is the
// length of one above --max-record, which has no text. It reports whether the outputs still
// take lines.
func (take *Intake) Put(text []byte, tooLong int64, k Known) (open bool) {
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

// KeptText is how much memory for its text an intake keeps.
const KeptText = 64 << 10

// A Known is what an input knows of a line, besides the line itself.
type Known struct {
	Noted  time.Time   // when it was written, unless it says so itself
	At     time.Time   // when it was written, whatever it says
	Likely *slog.Level // unless it says so itself; nil: not known
	Level  *slog.Level // whatever it says; nil: not known
	Attrs  []slog.Attr
}

// PartialLine marks a line whose end was not there when it was delivered.
var PartialLine = []slog.Attr{slog.Bool("partial", true)}

// A Place is where a line lies in an input that is kept.
type Place struct {
	end  int64 // where it ends
	safe int64 // everything before it is taken once the line is
}

// Line takes a line. It reports whether the outputs still take lines.
func (take *Intake) Line(line []byte, at Place, k Known) (open bool) {
	ev := &take.ev
	var meta batch.Meta
	var now int64
	limited := false
	if take.Parse {
		take.parser.Parse(line, ev)
		ev.More = k.Attrs
		take.told = take.told[:0]
		if k.Level == nil && !ev.HasLevel {
			k.Level = k.Likely
		}
		if ev.Format != record.Text { // which gets both as it is encoded
			if !k.At.IsZero() && ev.Time.IsZero() {
				take.told = append(take.told, slog.Time("time", k.At.UTC()))
			}
			if k.Level != nil && !ev.HasLevel {
				take.told = append(take.told, slog.String("level", values.LevelName(*k.Level)))
			}
		}
		if k.Level != nil {
			ev.Level, ev.HasLevel = *k.Level, true
		}
		switch {
		case take.In.Reading.Times == TimeOfNow:
			ev.Time = time.Now()
		case !k.At.IsZero():
			ev.Time = k.At
		case ev.Time.IsZero() && !k.Noted.IsZero():
			take.stamp(ev, k.Noted)
		}
		if ev.Time.IsZero() && take.In.Reading.Times == TimeOfBoth {
			take.arrived(ev)
		}
		if take.chain != nil {
			switch take.chain.Apply(ev) {
			case transform.LeftOut:
				take.In.left.Add(1)
				return true
			case transform.Limited:
				limited = true
			}
			if line = ev.Raw; len(take.told) > 0 {
				take.untell(ev)
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
		if len(take.told) > 0 {
			take.told = append(take.told, ev.More...)
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
				as := *ev // it goes as text: JSON that is nested too deeply for the destination
				as.Format = record.Text
				rec, m, err = out.Encode(out.rec[:0], &as)
			}
			if out.rec = rec; cap(rec) > KeptText {
				out.rec = nil
			}
		case out.form != nil:
			more := ev.More
			if len(take.told) > 0 {
				ev.More = take.told
			}
			rec, err = out.form.line(ev)
			ev.More = more
		case out.keeps && line[len(line)-1] != '\n':
			// What the next run reads comes behind it.
			take.ended = append(append(take.ended[:0], line...), '\n')
			rec = take.ended
		}
		if err != nil {
			take.marks[i].note(out.Output, at.safe, out.Delivery.Refuse(record.TrimEnd(line), meta, batch.Encode, fmt.Errorf("cannot encode it: %w", err)))
			continue
		}
		if out.Encode == nil && out.Engine && (!out.Target.Header || m.Time == 0) {
			// --retry-age counts from here, not from the time in a line, unless the
			// destination shows that time.
			if now == 0 {
				now = time.Now().UnixNano()
			}
			m.Time = now
		}
		err = out.Delivery.WriteRecord(rec, m) // what is dropped is counted there
		open = open && !errors.Is(err, batch.ErrClosed)
		take.marks[i].note(out.Output, at.safe, err)
	}
	return open
}

// stamp gives a line without a time the time at.
func (take *Intake) stamp(ev *record.Event, at time.Time) {
	ev.Time = at
	if ev.Format != record.Text { // which gets it as it is encoded
		take.told = append(take.told, slog.Time("time", at.UTC()))
	}
}

// arrived gives a line without a time that of its arrival, and a field that says so.
func (take *Intake) arrived(ev *record.Event) {
	take.stamp(ev, time.Now())
	take.more = append(append(take.more[:0], ev.More...), slog.String("time_from", "arrival"))
	ev.More = take.more
}

// untell removes from told the fields that a transform has added to the line.
func (take *Intake) untell(ev *record.Event) {
	var said record.Event
	take.parser.ParseAs(ev.Format, ev.Raw, len(ev.Line), &said)
	take.told = slices.DeleteFunc(take.told, func(a slog.Attr) bool {
		return a.Key == slog.LevelKey && said.HasLevel || a.Key == slog.TimeKey && !said.Time.IsZero()
	})
}

// A feed is an output, as an intake sees it.
type feed struct {
	*output.Output
	Encode dest.EncodeFunc // the target's own form; nil: form, or lines as they came
	rec    []byte          // memory of encode
	form   *form           // nil: lines as they came, or a form of its own
	level  *setting.Level  // of the output
	keeps  bool            // lines may be left for the next run
}

// A form is one way to write lines. Outputs that want the same share what is written.
type form struct {
	enc   *record.Encoder
	ready bool // rec and err are those of the current line
	rec   []byte
	err   error
}

func (f *form) line(ev *record.Event) ([]byte, error) {
	if !f.ready {
		f.rec, f.err = f.enc.Encode(ev)
		f.ready = true
	}
	return f.rec, f.err
}

// feeds finds the outputs of the intake, and the forms that they share.
func (take *Intake) feeds() {
	take.Outs, take.forms = nil, nil
	by := map[record.Encoding]*form{}
	for _, out := range take.In.Host.Outputs() {
		if !out.Spec.Route.Takes(take.In.Name) {
			continue
		}
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

// commonLevel returns the level of all outputs, nil if they have several.
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

// A Text describes the text of an input.
type Text struct {
	Charset *charset.Charset // nil: UTF-8
	Join    *join.Rules      // which lines are one record; nil: each line is
}

// Consume reads lines from r until it ends. kept is r, if r keeps the input that the outputs have
// not accepted, otherwise nil. wait waits for r for some time, and reports whether a Read does not
// wait; nil: a Read never waits. torn marks a last line without a newline: an earlier run was killed
// before it had read the rest.
func (take *Intake) Consume(r io.Reader, kept *readahead.File, text Text, wait func(time.Duration) bool, torn bool) error {
	jd := newJoined(take, text.Join, kept != nil)
	if jd != nil && kept != nil {
		r = unsettled{kept, jd}
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
	publish := func() { // for each line, it would take longer than to find its end
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
				jd.all()
			}
			if kept != nil {
				kept.Settle(at, false) // lines below --level, for instance
			}
			if err == io.EOF || errors.Is(err, ErrStopped) {
				return nil
			}
			return err
		}
		var k Known
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
