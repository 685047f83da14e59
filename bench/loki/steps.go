package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	h "github.com/forebay-log/forebay/bench/harness"
)

// The steps of serilog-sinks-grafana-loki's optimisation log, one after the other, in Go: a
// sink of that design, which collects events and writes them as JSON when there are
// pushEvents of them. Step 0 does it as one would at first; each further step has
// all those before it. None is for use: package loki, the last contender, renders in the caller, into slabs,
// as protobuf.

// A step is one of them.
type step int

const (
	first      step = iota
	digits          // the envelope is appended, and times are digits in it: no strings, no tree of structs
	typed           // values are appended by their kind: no map, no encoding/json
	rendered        // strings are escaped where they stand: no string of them between
	comparer        // entries are sorted by a typed comparison, and only if they are out of order
	direct          // labels are written as they are: no map of them for each event
	grouped         // streams are found by what makes them differ: their labels are written once for each push
	kept            // buffers of lines and bodies are used again
	dispatched      // who writes a value is a switch, not a look-up for each value
	asked           // an error is asked once for its stack
	looked          // and a frame is looked up once for good
	steps
)

var stepNotes = [steps]string{
	first:      "maps, structs and encoding/json",
	digits:     "the envelope appended, times as digits",
	typed:      "values by their kind",
	rendered:   "strings escaped in place",
	comparer:   "sorted by a typed comparison, if at all",
	direct:     "labels without a map",
	grouped:    "streams by level",
	kept:       "buffers used again",
	dispatched: "a switch for kinds",
	asked:      "stacks asked for once",
	looked:     "frames looked up once",
}

const pushEvents = 1000

// A stepped is a sink at one step.
type stepped struct {
	step    step
	client  *http.Client
	waiting []slog.Record
	streams []steppedStream // of one push
	lines   []byte          // of one push, from step kept on
	body    []byte
	frames  map[uintptr]string
	fault   error
}

type steppedStream struct {
	level   slog.Level
	labels  string            // as JSON
	set     map[string]string // before step direct
	entries []steppedEntry
}

type steppedEntry struct {
	time time.Time
	line []byte
}

func newStepped(s step, c *http.Client) *stepped {
	return &stepped{step: s, client: c, frames: map[uintptr]string{}}
}

func (p *stepped) log(r slog.Record) {
	if p.waiting = append(p.waiting, r); len(p.waiting) == pushEvents {
		p.push()
	}
}

// push sends what waits.
func (p *stepped) push() {
	if len(p.waiting) == 0 {
		return
	}
	p.group()
	for i := range p.streams {
		p.sort(p.streams[i].entries)
	}
	var body []byte
	if p.step < digits {
		body, p.fault = p.marshalled()
	} else {
		body = p.envelope()
	}
	req, err := http.NewRequest(http.MethodPost, "http://loki.invalid/loki/api/v1/push", bytes.NewReader(body))
	if err != nil {
		p.fault = err
		return
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := p.client.Do(req)
	if err != nil {
		p.fault = err
		return
	}
	io.Copy(io.Discard, res.Body)
	res.Body.Close()
	p.waiting = p.waiting[:0]
	if p.step < kept {
		p.waiting, p.streams = nil, nil
		return
	}
	p.body, p.lines = body, p.lines[:0]
	for i := range p.streams {
		p.streams[i].entries = p.streams[i].entries[:0]
	}
}

// group makes entries of the events that wait, in their streams.
func (p *stepped) group() {
	byLabels := map[string]int{}
	if p.step >= grouped {
		byLabels = nil
	}
	for _, r := range p.waiting {
		at := p.stream(r.Level, byLabels)
		st := &p.streams[at]
		st.entries = append(st.entries, steppedEntry{r.Time, p.line(&r)})
	}
}

func (p *stepped) stream(level slog.Level, byLabels map[string]int) int {
	if p.step >= grouped {
		for i := range p.streams {
			if p.streams[i].level == level {
				return i
			}
		}
	}
	var set map[string]string
	var labels string
	if p.step < direct {
		set = map[string]string{"app": label, "level": strings.ToLower(level.String())}
		names := make([]string, 0, len(set))
		for name := range set {
			names = append(names, name)
		}
		sort.Strings(names)
		parts := make([]string, 0, len(set))
		for _, name := range names {
			parts = append(parts, fmt.Sprintf("%q:%q", name, set[name]))
		}
		labels = "{" + strings.Join(parts, ",") + "}"
	} else {
		labels = `{"app":"` + label + `","level":"` + strings.ToLower(level.String()) + `"}`
	}
	if i, ok := byLabels[labels]; ok {
		return i
	}
	p.streams = append(p.streams, steppedStream{level: level, labels: labels, set: set})
	if byLabels != nil {
		byLabels[labels] = len(p.streams) - 1
	}
	return len(p.streams) - 1
}

func (p *stepped) sort(entries []steppedEntry) {
	if p.step < comparer {
		sort.SliceStable(entries, func(i, j int) bool { return entries[i].time.Before(entries[j].time) })
		return
	}
	byTime := func(a, b steppedEntry) int { return a.time.Compare(b.time) }
	if !slices.IsSortedFunc(entries, byTime) {
		slices.SortStableFunc(entries, byTime)
	}
}

// marshalled returns the body of a push by way of encoding/json.
func (p *stepped) marshalled() ([]byte, error) {
	type stream struct {
		Stream map[string]string `json:"stream"`
		Values [][2]string       `json:"values"`
	}
	var push struct {
		Streams []stream `json:"streams"`
	}
	for i := range p.streams {
		st := stream{Stream: p.streams[i].set}
		for _, e := range p.streams[i].entries {
			st.Values = append(st.Values, [2]string{strconv.FormatInt(e.time.UnixNano(), 10), string(e.line)})
		}
		push.Streams = append(push.Streams, st)
	}
	return json.Marshal(push)
}

func (p *stepped) envelope() []byte {
	dst := append(p.body[:0], `{"streams":[`...)
	for i := range p.streams {
		st := &p.streams[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, `{"stream":`...), st.labels...), `,"values":[`...)
		for k, e := range st.entries {
			if k > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, `["`...)
			dst = strconv.AppendInt(dst, e.time.UnixNano(), 10)
			dst = append(p.text(append(dst, `",`...), e.line), ']')
		}
		dst = append(dst, "]}"...)
	}
	return append(dst, "]}"...)
}

// line returns the line of an event.
func (p *stepped) line(r *slog.Record) []byte {
	if p.step < typed {
		line := map[string]any{"Message": r.Message}
		r.Attrs(func(a slog.Attr) bool {
			line[a.Key] = a.Value.Any()
			if e, ok := a.Value.Any().(*thrown); ok {
				line[a.Key] = p.object(e)
			}
			return true
		})
		b, err := json.Marshal(line)
		if err != nil {
			p.fault = err
		}
		return b
	}
	var dst []byte
	if p.step >= kept {
		dst = p.lines
	}
	start := len(dst)
	dst = p.text(append(dst, `{"Message":`...), []byte(r.Message))
	r.Attrs(func(a slog.Attr) bool {
		dst = append(p.text(append(dst, ','), []byte(a.Key)), ':')
		if p.step < dispatched {
			dst = writers[a.Value.Kind()](p, dst, a.Value)
		} else {
			dst = p.value(dst, a.Value)
		}
		return true
	})
	dst = append(dst, '}')
	if p.step >= kept {
		p.lines = dst
	}
	return dst[start:len(dst):len(dst)]
}

func (p *stepped) object(e *thrown) map[string]any {
	o := map[string]any{"Type": fmt.Sprintf("%T", e), "Message": e.Error()}
	if p.stack(e) != "" { // as the source did before its step 10
		o["StackTrace"] = p.stack(e)
	}
	if in, ok := e.Unwrap().(*thrown); ok {
		o["Inner"] = p.object(in)
	}
	return o
}

var writers = map[slog.Kind]func(*stepped, []byte, slog.Value) []byte{}

func init() {
	for _, k := range []slog.Kind{slog.KindInt64, slog.KindFloat64, slog.KindBool, slog.KindString, slog.KindAny} {
		writers[k] = func(p *stepped, dst []byte, v slog.Value) []byte { return p.value(dst, v) }
	}
}

func (p *stepped) value(dst []byte, v slog.Value) []byte {
	switch v.Kind() {
	case slog.KindInt64:
		return strconv.AppendInt(dst, v.Int64(), 10)
	case slog.KindFloat64:
		return strconv.AppendFloat(dst, v.Float64(), 'f', -1, 64)
	case slog.KindBool:
		return strconv.AppendBool(dst, v.Bool())
	case slog.KindString:
		return p.text(dst, []byte(v.String()))
	}
	switch x := v.Any().(type) {
	case uuid:
		return append(x.append(append(dst, '"')), '"')
	case *thrown:
		return p.failure(dst, x)
	}
	return p.text(dst, fmt.Append(nil, v.Any()))
}

func (p *stepped) failure(dst []byte, e *thrown) []byte {
	dst = p.text(append(dst, `{"Type":"*main.thrown","Message":`...), []byte(e.Error()))
	switch {
	case p.step < asked:
		if p.stack(e) != "" {
			dst = p.text(append(dst, `,"StackTrace":`...), []byte(p.stack(e)))
		}
	case p.step < looked:
		if s := p.stack(e); s != "" {
			dst = p.text(append(dst, `,"StackTrace":`...), []byte(s))
		}
	default:
		dst = append(dst, `,"StackTrace":"`...)
		for i, pc := range e.pcs {
			if i > 0 {
				dst = append(dst, `\n`...)
			}
			dst = append(dst, p.frame(pc)...)
		}
		dst = append(dst, '"')
	}
	if in, ok := e.Unwrap().(*thrown); ok {
		dst = p.failure(append(dst, `,"Inner":`...), in)
	}
	return append(dst, '}')
}

func (p *stepped) stack(e *thrown) string { return e.stack() }

// frame returns a frame as it stands in a JSON string.
func (p *stepped) frame(pc uintptr) string {
	s, ok := p.frames[pc]
	if !ok {
		f, _ := runtime.CallersFrames([]uintptr{pc}).Next()
		quoted := appendEscaped(nil, fmt.Appendf(nil, "%s %s:%d", f.Function, f.File, f.Line))
		s = string(quoted[1 : len(quoted)-1])
		p.frames[pc] = s
	}
	return s
}

// text appends s as a JSON string.
func (p *stepped) text(dst, s []byte) []byte {
	if p.step >= rendered {
		return appendEscaped(dst, s)
	}
	b, err := json.Marshal(string(s))
	if err != nil {
		p.fault = err
	}
	return append(dst, b...)
}

// appendEscaped appends s, which is UTF-8, as a JSON string.
func appendEscaped(dst, s []byte) []byte {
	dst = append(dst, '"')
	from := 0
	for i, c := range s {
		if c >= 0x20 && c != '"' && c != '\\' && c < utf8.RuneSelf {
			continue
		}
		if c >= utf8.RuneSelf {
			continue
		}
		dst = append(dst, s[from:i]...)
		from = i + 1
		switch c {
		case '\n':
			dst = append(dst, `\n`...)
		case '"', '\\':
			dst = append(dst, '\\', c)
		default:
			dst = fmt.Appendf(dst, `\u%04x`, c)
		}
	}
	return append(append(dst, s[from:]...), '"')
}

// steppedContender is step s.
func steppedContender(s step, exception bool) h.Contender {
	return h.Contender{Name: s.String(), Kind: h.Rival, Note: stepNotes[s], New: func(*h.Env) (*h.Subject, error) {
		sink := newSink204()
		p := newStepped(s, sink.client())
		recs := records(exception)
		n0 := uint64(0)
		return &h.Subject{Run: func(_, n int) {
			for i := range n {
				p.log(recs[i%len(recs)])
			}
			n0 += uint64(n)
		}, Drain: func() error { p.push(); return p.fault },
			Tally: func() (h.Tally, error) { return h.Tally{Records: n0, Bytes: sink.bytes.Load()}, nil }}, nil
	}}
}

func (s step) String() string { return fmt.Sprintf("step %d", int(s)) }

// stepRows are the steps, with what is shipped behind them.
func stepRows() (out []h.Row) {
	for label, exception := range map[string]bool{"loki/steps-simple": false, "loki/steps-exception": true} {
		row := h.Row{Name: label, What: "10,000 prebuilt events: the steps of the source's optimisation log, each with those before it; then what is shipped", Target: "none: what each step gains",
			Reference: first.String(), MaxOps: 10_000, Apart: true, Verdict: shipped}
		for s := range steps {
			row.Contenders = append(row.Contenders, steppedContender(s, exception))
		}
		row.Contenders = append(row.Contenders, ours(name, handler, "protobuf", exception, 0), ours("json", handler, "json", exception, 0))
		out = append(out, row)
	}
	slices.SortFunc(out, func(a, b h.Row) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// shipped is the verdict of rows that have no target.
func shipped(r *h.Result) []h.Check {
	c := r.Column(name)
	if c == nil || c.Error != "" {
		return []h.Check{{Text: name + " was not measured", Status: h.NotMeasured}}
	}
	return []h.Check{{Text: fmt.Sprintf("%s %.2f × step 0", name, c.Ratio), Got: c.Ratio, Limit: c.Ratio, Status: h.OK}}
}
