package program

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
	"github.com/forebay-log/forebay/cmd/internal/join"
	"github.com/forebay-log/forebay/cmd/internal/lines"
	"github.com/forebay-log/forebay/cmd/internal/readahead"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/cmd/internal/transform"
	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/internal/values"
)

// An intake puts the lines of an inlet into the outputs, one after the other. An inlet
// that several goroutines read has several.
type intake struct {
	in *inlet
	p  *pipeline

	mu       sync.Mutex // held while it takes lines; what is below changes under it
	kept     *readahead.File
	parser   record.Parser
	unparsed uint64 // of parser, what the inlet knows
	outs     []feed
	forms    []*form
	common   *setting.Level // of all outputs; nil: each has its own
	marks    []mark         // of the outputs

	chain *transform.Chain // nil: lines stay as they are
	parse bool             // lines are looked into
	ev    record.Event
	told  []slog.Attr // what is known of the line and does not stand in it; empty: nothing more than ev.More
	more  []slog.Attr // memory of arrived
	ended []byte      // a line that was given its end
}

// newIntake returns an intake for in. Those of a pipeline are made while nobody changes
// its outputs.
func (in *inlet) newIntake() *intake {
	take := &intake{in: in, p: in.p}
	take.wire()
	in.intakes = append(in.intakes, take)
	return take
}

// from says that lines come from a file of input from now on; nil: from none.
func (take *intake) from(kept *readahead.File) {
	take.kept, take.marks = kept, marks(take.outs, kept)
}

// wire connects the intake with the outputs of the pipeline that want its lines, and has
// it read as its inlet says.
func (take *intake) wire() {
	take.publish()
	take.parser, take.unparsed = take.in.c.parser(), 0
	take.parse, take.chain = false, nil
	if take.in.chain != nil {
		take.chain, take.parse = take.in.chain.Clone(), true
	}
	take.feeds()
	take.from(take.kept)
	take.common = commonLevel(take.outs)
	for i := range take.outs {
		out := &take.outs[i]
		take.parse = take.parse || out.c.Level().Given || out.c.route.where != nil || out.form != nil || out.encode != nil || out.t.header
	}
}

// hold keeps the intake from taking lines until release. It gives up when ctx is done: a
// line may wait for room.
func (take *intake) hold(ctx context.Context) (release func(), err error) {
	held := make(chan struct{})
	go func() {
		take.mu.Lock()
		select {
		case held <- struct{}{}:
		case <-ctx.Done():
			take.mu.Unlock()
		}
	}()
	select {
	case <-held:
		return take.mu.Unlock, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// publish tells the inlet what the parser has counted.
func (take *intake) publish() {
	take.in.unparsed.Add(take.parser.Unparsed - take.unparsed)
	take.unparsed = take.parser.Unparsed
}

// tooLong counts a line above --max-record, which ends at offset at.
func (take *intake) tooLong(at int64) {
	take.in.oversize.Add(1)
	for i := range take.outs {
		if out := &take.outs[i]; take.marks[i].wants(at) {
			out.noteOversize(take.marks[i], out.d.Refuse(nil, batch.Meta{}, batch.Oversize, nil))
		}
	}
}

// put takes a record of an input whose positions are its own, and counts it. tooLong is the
// length of one above --max-record, which has no text. It reports whether the outputs still
// take lines.
func (take *intake) put(text []byte, tooLong int64, k known) (open bool) {
	take.mu.Lock()
	defer take.mu.Unlock()
	take.in.records.Add(1)
	if tooLong > 0 {
		take.in.bytes.Add(uint64(tooLong))
		take.tooLong(0)
		return true
	}
	take.in.bytes.Add(uint64(len(text)))
	defer take.publish()
	return take.line(text, place{}, k)
}

// A known is what an input knows of a line, besides the line itself.
type known struct {
	noted  time.Time   // when it was written, unless it says so itself
	at     time.Time   // when it was written, whatever it says
	likely *slog.Level // unless it says so itself; nil: not known
	level  *slog.Level // whatever it says; nil: not known
	attrs  []slog.Attr
}

// partialLine marks a line whose end was not there when it was delivered.
var partialLine = []slog.Attr{slog.Bool("partial", true)}

// A place is where a line lies in an input that is kept.
type place struct {
	end  int64 // where it ends
	safe int64 // everything before it is taken once the line is
}

// line takes a line. It reports whether the outputs still take lines.
func (take *intake) line(line []byte, at place, k known) (open bool) {
	ev := &take.ev
	var meta batch.Meta
	var now int64
	limited := false
	if take.parse {
		take.parser.Parse(line, ev)
		ev.More = k.attrs
		take.told = take.told[:0]
		if k.level == nil && !ev.HasLevel {
			k.level = k.likely
		}
		if ev.Format != record.Text { // which gets both as it is encoded
			if !k.at.IsZero() && ev.Time.IsZero() {
				take.told = append(take.told, slog.Time("time", k.at.UTC()))
			}
			if k.level != nil && !ev.HasLevel {
				take.told = append(take.told, slog.String("level", values.LevelName(*k.level)))
			}
		}
		if k.level != nil {
			ev.Level, ev.HasLevel = *k.level, true
		}
		switch {
		case take.in.c.times == timeOfNow:
			ev.Time = time.Now()
		case !k.at.IsZero():
			ev.Time = k.at
		case ev.Time.IsZero() && !k.noted.IsZero():
			take.stamp(ev, k.noted)
		}
		if ev.Time.IsZero() && take.in.c.times == timeOfBoth {
			take.arrived(ev)
		}
		if take.chain != nil {
			switch take.chain.Apply(ev) {
			case transform.LeftOut:
				take.in.left.Add(1)
				return true
			case transform.Limited:
				limited = true
			}
			if line = ev.Raw; len(take.told) > 0 {
				take.untell(ev)
			}
		}
		if take.common != nil && !take.common.Admits(ev) {
			take.in.filtered.Add(1)
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
	for i := range take.outs {
		out := &take.outs[i]
		if !take.marks[i].wants(at.end) {
			continue
		}
		if take.common == nil && !out.level.Admits(ev) {
			out.below.Add(1)
			continue
		}
		if !out.c.route.where.Matches(ev) {
			out.elsewhere.Add(1)
			continue
		}
		if limited {
			out.limited.Add(1)
			continue
		}
		rec, m, err := line, meta, error(nil)
		switch {
		case out.encode != nil:
			if rec, m, err = out.encode(out.rec[:0], ev); err != nil && ev.Format != record.Text {
				as := *ev // it goes as text: JSON that is nested too deeply for the destination
				as.Format = record.Text
				rec, m, err = out.encode(out.rec[:0], &as)
			}
			if out.rec = rec; cap(rec) > keptText {
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
			out.note(take.marks[i], at.safe, out.d.Refuse(record.TrimEnd(line), meta, batch.Encode, fmt.Errorf("cannot encode it: %w", err)))
			continue
		}
		if out.encode == nil && out.engine && (!out.t.header || m.Time == 0) {
			// --retry-age counts from here, not from the time in a line, unless the
			// destination shows that time.
			if now == 0 {
				now = time.Now().UnixNano()
			}
			m.Time = now
		}
		err = out.d.WriteRecord(rec, m) // what is dropped is counted there
		open = open && !errors.Is(err, batch.ErrClosed)
		out.note(take.marks[i], at.safe, err)
	}
	return open
}

// stamp gives a line without a time the time at.
func (take *intake) stamp(ev *record.Event, at time.Time) {
	ev.Time = at
	if ev.Format != record.Text { // which gets it as it is encoded
		take.told = append(take.told, slog.Time("time", at.UTC()))
	}
}

// arrived gives a line without a time that of its arrival, and a field that says so.
func (take *intake) arrived(ev *record.Event) {
	take.stamp(ev, time.Now())
	take.more = append(append(take.more[:0], ev.More...), slog.String("time_from", "arrival"))
	ev.More = take.more
}

// untell takes out of told what stands in the line since it was changed.
func (take *intake) untell(ev *record.Event) {
	var said record.Event
	take.parser.ParseAs(ev.Format, ev.Raw, len(ev.Line), &said)
	take.told = slices.DeleteFunc(take.told, func(a slog.Attr) bool {
		return a.Key == slog.LevelKey && said.HasLevel || a.Key == slog.TimeKey && !said.Time.IsZero()
	})
}

// A feed is an output, as an intake sees it.
type feed struct {
	*output
	encode encodeFunc     // the target's own form; nil: form, or lines as they came
	rec    []byte         // memory of encode
	form   *form          // nil: lines as they came, or a form of its own
	level  *setting.Level // of the output
	keeps  bool           // lines may be left for the next run
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
func (take *intake) feeds() {
	take.outs, take.forms = nil, nil
	by := map[record.Encoding]*form{}
	for _, out := range take.p.outs {
		if !out.c.route.takes(take.in.name) {
			continue
		}
		f := feed{output: out, level: out.c.Level(), keeps: out.c.keepsLines()}
		if out.t.newEncoder != nil {
			f.encode = out.t.newEncoder()
		} else if as := out.c.encoding(); as != record.AsRaw {
			if by[as] == nil {
				by[as] = &form{enc: record.NewEncoder(as)}
				take.forms = append(take.forms, by[as])
			}
			f.form = by[as]
		}
		take.outs = append(take.outs, f)
	}
}

// commonLevel returns the level of all outputs, nil if they have several.
func commonLevel(outs []feed) *setting.Level {
	l := new(setting.Level)
	for i, out := range outs {
		if i == 0 {
			l = out.c.Level()
		} else if *out.c.Level() != *l {
			return nil
		}
	}
	return l
}

// readFrom takes lines from r until it ends. kept is the same, if it keeps what the
// outputs have not accepted. rules say which lines are one record; nil: each is. wait waits
// for r for some time, and reports whether a Read does not wait; nil: it never does. torn
// marks a last line without an end: an earlier run was killed before it had read all of it.
func (take *intake) readFrom(r io.Reader, kept *readahead.File, rules *join.Rules, wait func(time.Duration) bool, torn bool) error {
	jd := newJoined(take, rules, kept != nil)
	if jd != nil && kept != nil {
		r = unsettled{kept, jd}
	}
	src := lines.New(r, int(take.p.c.maxRecord.Value))
	var records int
	var before int64
	held := false
	hold := func() {
		if !held {
			take.mu.Lock()
			held = true
		}
	}
	publish := func() { // for each line, it would take longer than to find its end
		if jd != nil {
			records, jd.records = records+jd.records, 0
		}
		take.in.records.Add(uint64(records))
		take.in.bytes.Add(uint64(src.Offset() - before))
		records, before = 0, src.Offset()
		if held {
			take.publish()
			take.mu.Unlock()
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
		line, err := src.Next()
		hold()
		at := src.Offset()
		if err != nil {
			switch {
			case lines.IsTooLong(err):
				records++
				take.tooLong(at)
				continue
			case jd != nil:
				jd.all()
			}
			if kept != nil {
				kept.Settle(at, false) // lines below --level, for instance
			}
			if err == io.EOF || errors.Is(err, errStopped) {
				return nil
			}
			return err
		}
		var k known
		if torn && line[len(line)-1] != '\n' {
			take.p.con.Say("%s", take.in.of(errors.New("standard input: an earlier run had read part of a line; it is delivered with the field partial=true")))
			k.attrs = partialLine
		}
		if jd != nil {
			jd.attrs = k.attrs
			jd.line(line, at)
			continue
		}
		records++
		take.line(line, place{at, at}, k)
	}
}
