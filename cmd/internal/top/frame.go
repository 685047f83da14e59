package top

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/control"
	"github.com/forebay-log/forebay/internal/units"
)

// A Style describes the capabilities of the terminal.
type Style struct {
	Width int  // width in columns
	Color bool // use colors
	ASCII bool // use only ASCII characters
}

// Lines returns the whole display as lines of text.
func (h *History) Lines(s Style) (text []string) {
	for i, part := range h.parts(s) {
		if i > 1 {
			text = append(text, "")
		}
		for _, l := range part {
			text = append(text, l.render(s.Color))
		}
	}
	return text
}

// parts returns the parts of the display: first the lines about the program, and then the lines
// about each output.
func (h *History) parts(s Style) [][]line {
	parts := [][]line{h.head(s)}
	for i := range h.now.Outputs {
		parts = append(parts, h.output(s, &h.now.Outputs[i]))
	}
	return parts
}

// head returns the lines about the program and its inputs.
func (h *History) head(s Style) (lines []line) {
	st := h.now
	state := word{}
	if st.Ending {
		state = word{"reading has ended, delivering the rest", yellow}
	}
	lines = flow(s.Width, 0,
		word{cut(st.Name, max(10, s.Width/2)), bold}, word{text: fmt.Sprintf("pid %d", st.PID)}, word{text: st.Verb},
		word{text: "up " + units.Duration(st.Now.Sub(st.Start).Truncate(time.Second))}, word{st.Version, dim}, state)
	in := &st.Input
	words := []word{{"read", dim}}
	if b := h.before; b != nil {
		words = append(words,
			word{text: pad(units.Rate(h.perSecond(b.Input.Records, in.Records)), 7) + " lines/s"},
			word{text: pad(units.Size(h.perSecond(b.Input.Bytes, in.Bytes)), 8) + "/s"})
	}
	words = append(words, word{text: units.Count(in.Records) + " lines"}, word{text: units.Size(float64(in.Bytes))})
	for _, part := range []struct {
		n    uint64
		text string
		style
	}{
		{in.Filtered, "below --level", ""}, {in.Unparsed, "taken as text", ""},
		{in.Oversize, "too long", red},
	} {
		if part.n > 0 {
			words = append(words, word{units.Count(part.n) + " " + part.text, part.style})
		}
	}
	return append(lines, append(flow(s.Width, 0, words...), nil)...)
}

// output returns the lines about the output o.
func (h *History) output(s Style, o *control.Output) (lines []line) {
	state := h.state(o)
	name := word{o.To, bold}
	lines = flow(s.Width, 0, name, state)

	words := []word{}
	if b := h.earlier(o.To); b != nil {
		words = append(words,
			word{text: pad(units.Rate(h.perSecond(b.Delivered, o.Delivered)), 7) + "/s"},
			word{text: pad(units.Size(h.perSecond(b.Bytes, o.Bytes)), 8) + "/s"})
	} else {
		words = append(words, word{text: units.Count(o.Delivered) + " delivered"})
	}
	words = append(words, lag(o), s.slabs(&o.Slabs), s.spool(o.Spool))
	if n := o.Pending.Slab + o.Pending.Spill + o.Pending.Inflight; n > 0 {
		words = append(words, word{text: units.Count(n) + " waiting"})
	}
	lines = append(lines, flow(s.Width, 2, words...)...)
	lines = append(lines, flow(s.Width, 2, h.waiting(s, o)...)...)

	words = words[:0]
	for i, why := range slices.Sorted(maps.Keys(o.Dropped)) {
		w := word{units.Count(o.Dropped[why]) + " " + why, red}
		if i == 0 {
			w.text = "dropped " + w.text
		}
		words = append(words, w)
	}
	if o.Handled > 0 {
		words = append(words, word{text: units.Count(o.Handled) + " handled elsewhere"})
	}
	if o.Retries > 0 {
		words = append(words, word{text: units.Count(o.Retries) + " failed attempts"})
	}
	lines = append(lines, flow(s.Width, 2, words...)...)
	return append(lines, s.fault(o.LastError)...)
}

// state returns a short text about the state of the output o.
func (h *History) state(o *control.Output) word {
	since := ""
	if !o.FailingSince.IsZero() {
		since = " for " + units.Duration(max(0, h.now.Now.Sub(o.FailingSince)).Truncate(time.Second))
	}
	switch {
	case o.Gone:
		return word{"has ended", red}
	case o.Circuit == "open":
		return word{"circuit open, fails" + since, red}
	case o.Circuit != "closed":
		return word{"circuit " + o.Circuit + ", fails" + since, yellow}
	case since != "":
		return word{"fails" + since, yellow}
	}
	return word{"circuit closed", green}
}

// lag returns the age of the oldest undelivered record of the output o.
func lag(o *control.Output) word {
	text := "0"
	if o.Oldest.Wait > 0 {
		text = units.Duration(seconds(o.Oldest.Wait))
	}
	w := word{text: "lag " + pad(text, 6)}
	if o.Oldest.Wait >= 10 {
		w.style = yellow
	}
	return w
}

// seconds converts a number of seconds to a duration. It limits the duration, because s is from
// another program and may have any value.
func seconds(s float64) time.Duration {
	const most = 100 * 365 * 24 * time.Hour
	if d := s * float64(time.Second); d < float64(most) {
		return time.Duration(d)
	}
	return most
}

// slabs returns a bar that shows which part of the slabs is in use.
func (s Style) slabs(m *control.Slabs) word {
	full, empty := "█", "░"
	if s.ASCII {
		full, empty = "#", "."
	}
	width := 16
	if s.Width < 80 {
		width = 8
	}
	used := 0.0
	if m.Count > 0 {
		used = min(1, max(0, float64(m.InUse)/float64(m.Count)))
	}
	n := int(math.Ceil(used * float64(width)))
	w := word{text: "slabs " + strings.Repeat(full, n) + strings.Repeat(empty, width-n) + fmt.Sprintf(" %d/%d", m.InUse, m.Count)}
	switch {
	case used >= 1:
		w.style = red
	case used >= 0.75:
		w.style = yellow
	}
	return w
}

// spool returns a text that shows which part of the spool is in use.
func (s Style) spool(d *control.Spool) word {
	if d == nil {
		return word{}
	}
	w := word{text: "spool " + units.Size(float64(d.Bytes)) + " of " + units.Size(float64(d.MaxBytes))}
	if d.Parked > 0 {
		w.text += ", " + units.Count(d.Parked) + " parked"
	}
	switch {
	case d.Bytes >= d.MaxBytes*9/10:
		w.style = red
	case d.Records > 0:
		w.style = yellow
	}
	return w
}

// waiting returns a curve of the percentage of time that callers spent waiting for room in the
// memory of the output.
func (h *History) waiting(s Style, o *control.Output) []word {
	w := h.waits[o.To]
	if w == nil || len(w.shares) == 0 {
		return nil
	}
	levels := []rune("▁▂▃▄▅▆▇█")
	if s.ASCII {
		levels = []rune("_.-=+*%#")
	}
	last := w.shares[len(w.shares)-1]
	words := []word{{text: "waits"}, {text: pad(fmt.Sprintf("%.0f%%", math.Ceil(100*last)), 4)}}
	if last > 0 {
		words[1].style = yellow
	}
	if len(w.shares) > 1 {
		width := max(10, min(samples, s.Width-32)) // leave room for texts in the line
		shares := w.shares[max(0, len(w.shares)-width):]
		curve := make([]rune, len(shares))
		for i, share := range shares {
			curve[i] = levels[int(math.Ceil(share*float64(len(levels)-1)))]
		}
		words = slices.Insert(words, 1, word{pad(string(curve), width), words[1].style})
	}
	before := h.earlier(o.To)
	switch n := o.Waits.Count - before.Waits.Count; {
	case o.Waits.Now > 0 && o.Waits.Count == before.Waits.Count && before.Waits.Now > 0:
		words = append(words, word{"a caller waits", red})
	case n > 0 && o.Waits.Count > before.Waits.Count:
		words = append(words, word{text: units.Duration(seconds((o.Waits.Seconds-before.Waits.Seconds)/float64(n))) + " each"})
	}
	return words
}

// fault returns the last error of a failing output, in at most two lines.
func (s Style) fault(text string) []line {
	if text == "" {
		return nil
	}
	const head = "error "
	room := max(1, s.Width-2-len(head))
	first := text
	if columns(text) > room {
		at := 0
		for i, r := range text {
			if columns(text[:i])+columns(string(r)) > room {
				break
			}
			if at = i + len(string(r)); r == ' ' && i > len(text)/3 {
				first = text[:at]
			}
		}
		if len(first) == len(text) || columns(first) > room {
			first = text[:at]
		}
	}
	lines := []line{{{text: "  "}, {head, dim}, {strings.TrimRight(first, " "), red}}}
	if rest := text[len(first):]; rest != "" {
		lines = append(lines, line{{text: strings.Repeat(" ", 2+len(head))}, {cut(rest, room), red}})
	}
	return lines
}
