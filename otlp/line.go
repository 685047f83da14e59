package otlp

import (
	"log/slog"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
)

// plain returns a scope that writes no source positions. It is for records that were not created by
// a log call.
func (e *encoder) plain() encode.Scope {
	bare := *e
	bare.source = false
	return bare.Scope()
}

// AppendLine appends to dst a record whose body is line. It is for programs that forward the lines
// of other programs. If t is zero, the record has no time; with the level [batch.NoLevel] it has no
// severity. AppendLine fails if the record is larger than 256 MiB. It does not retain its
// arguments. The record does not pass through a Router, so options such as forebay.RedactKeys have
// no effect on it.
func (x *Driver) AppendLine(dst []byte, t time.Time, level slog.Level, line []byte, attrs []slog.Attr) ([]byte, batch.Meta, error) {
	dst, start := openLen(dst, tagRecord)
	dst, at := appendTimes(dst, t)
	m := batch.Meta{Time: at, Level: level}
	// Memory needs a level for each record; slab.Options.Reserve, for example, depends on it.
	if level == batch.NoLevel {
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
	dst = w.appendOriginalTime(dst, t)
	dst = w.attrs(dst, tagAttr, attrs, 0)
	w.keys.Close()
	dst = w.ids.append(dst)
	return finish(dst, start, m)
}
