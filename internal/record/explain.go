package record

import (
	"fmt"
	"time"

	"github.com/forebay-log/forebay/internal/stamp"
	"github.com/forebay-log/forebay/internal/values"
)

// An Explanation describes how Parse has interpreted a line.
type Explanation struct {
	Format, Time, Level string // each the result, or "none", and the reason
}

// Explain explains the result of Parse for ev.
func (p *Parser) Explain(ev *Event) (x Explanation) {
	at, level := "none", "none"
	if !ev.Time.IsZero() {
		at = ev.Time.UTC().Format(time.RFC3339Nano)
	}
	if ev.HasLevel {
		level = values.LevelName(ev.Level)
	}
	if ev.Format != Text {
		x.Format = "JSON: the line is an object"
		if ev.Format == Logfmt {
			x.Format = "logfmt: the line consists of key=value pairs"
		}
		field := func(name []byte, known bool) string {
			switch {
			case name != nil:
				return fmt.Sprintf("the field %q", name)
			case known:
				return "audit(…) in the field \"msg\""
			}
			return "no field with one of the usual names"
		}
		x.Time = at + ": " + field(ev.timeKey, !ev.Time.IsZero())
		x.Level = level + ": " + field(ev.levelKey, false)
		return x
	}
	x.Format = "text: the line is neither a JSON object nor key=value pairs"
	if p.Format != Auto {
		x.Format = "text: --format " + p.Format.String()
	}
	m, ok := stamp.FindText(ev.Line, p.location(), p.Now)
	if ok {
		x.Time = fmt.Sprintf("%s: %q (%s)", at, ev.Line[m.From:m.To], m.Form.Name)
		if m.Yearless {
			x.Time += ", in the last such year"
		}
	} else {
		x.Time = "none: no date with a time begins in the first 96 bytes"
	}
	if f := textLevel(ev.Line, &m); f.why != "" {
		x.Level = fmt.Sprintf("%s: %q (%s)", level, ev.Line[f.from:f.to], f.why)
	} else {
		x.Level = "none: no word is in a position for levels"
	}
	return x
}
