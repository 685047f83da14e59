package otlp

import (
	"log/slog"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
)

// plain returns a scope without source positions, for records that no log call has written.
func (e *encoder) plain() encode.Scope {
	bare := *e
	bare.source = false
	return bare.Scope()
}

// AppendLine appends a record with the given line as its body to dst. It is for programs that forward
// lines logged by other programs. A zero t means that the time is unknown; with the level
// [batch.NoLevel] the record has no severity. The error reports a record larger than 256 MiB.
// AppendLine retains none of its arguments. The line does not pass through a Router, so
// forebay.RedactKeys and related options do not apply.
func (x *Driver) AppendLine(dst []byte, t time.Time, level slog.Level, line []byte, attrs []slog.Attr) ([]byte, batch.Meta, error) {
	dst, start := openLen(dst, tagRecord)
	dst, at := appendTimes(dst, t)
	m := batch.Meta{Time: at, Level: level}
	if level == batch.NoLevel { // the Meta needs a level, for example for the reserve of memory
		m.Level = slog.LevelInfo
	} else {
		dst = appendLevel(dst, level)
	}
	w := getWriter(x.lines, nil)
	defer w.free()
	w.text = append(w.text[:0], line...)
	dst = appendBody(dst, string(w.text))
	w.distinct = !isOriginal(t) && noKeys.Distinct(attrs)
	w.keys.Open(nil)
	dst = w.original(dst, t)
	dst = w.attrs(dst, tagAttr, attrs, 0)
	w.keys.Close()
	dst = w.ids.append(dst)
	return finish(dst, start, m)
}
