package deliver

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/written"
)

// lineChunk is the number of bytes after which the collected lines are written. Each write contains
// whole lines only.
const lineChunk = 64 << 10

// jsonLines writes records to an io.Writer, one record per line.
type jsonLines struct {
	// line appends one line, newline included.
	line func(dst []byte, b *batch.Batch, rec *batch.Record, cause error) []byte

	lock ctxLock // guards the other fields and the writer
	w    io.Writer
	buf  []byte
	torn bool // the last write ended in the middle of a line
}

// HandleError writes the records of b, about lineChunk bytes at a time. If the writer fails, the
// records with complete lines are settled, and all other records are open.
func (j *jsonLines) HandleError(cause error, b *batch.Batch) batch.Outcome {
	j.lock <- struct{}{}
	defer j.lock.release()
	j.buf = j.buf[:0]
	if j.torn {
		j.buf = append(j.buf, '\n') // ends the partial line
	}
	settled := 0
	var ends []int // offsets in buf at which lines end
	for i, rec := range b.All() {
		j.buf = j.line(j.buf, b, &rec, cause)
		ends = append(ends, len(j.buf))
		if len(j.buf) < lineChunk && i < b.Len()-1 {
			continue
		}
		n, err := j.write()
		if err != nil {
			for _, end := range ends {
				if end-1 <= n { // the records are written, except perhaps for the last newline, which the next call writes first
					settled++
				}
			}
			return batch.Outcome{Open: batch.From(settled), Why: err}
		}
		settled += len(ends)
		ends, j.buf = ends[:0], j.buf[:0]
	}
	return batch.Outcome{}
}

// write writes buf and returns the number of written bytes. It stores whether the last line is
// partial. An error after the last byte is ignored, because all records are written.
func (j *jsonLines) write() (done int, err error) {
	wasTorn := j.torn
	j.torn = true // if w panics, the number of bytes that it has written is unknown
	err = written.All(j.w, j.buf, &done, nil)
	j.torn = wasTorn
	if done > 0 {
		j.torn = j.buf[done-1] != '\n'
	}
	if done == len(j.buf) {
		err = nil
	}
	return done, err
}

// JSONLines returns an [ErrorHandler] that writes each record to w as one JSON object on a separate
// line, through the batch's [batch.Codec]. A record that the codec cannot read is written as
// {"raw":"…"}, or as {"raw_base64":"…"} if it is not text. If w fails within a line, a newline is
// written before the next line. The handler may serve several outlets. It does not close w.
func JSONLines(w io.Writer) ErrorHandler {
	return &jsonLines{w: w, lock: newCtxLock(), line: func(dst []byte, b *batch.Batch, rec *batch.Record, _ error) []byte {
		return append(appendRecord(dst, b.Codec, rec), '\n')
	}}
}

// DeadLetters returns an [ErrorHandler] that writes each record to w as a line
//
//	{"time":"2026-01-02T15:04:05.123456789Z","destination":"loki","status":400,
//	 "reason":"entry too far behind","id":"9f2c…:4711","record_time":"…","level":"ERROR",
//	 "stream":7,"record":{…}}
//
// time is the current time in UTC. status is the result of a method HTTPStatus() int of the cause,
// such as httpclient.Error. id is the Origin of the batch in hexadecimal and the ticket; it stays
// the same if the record is refused again, even in a later process. record has the format of
// [JSONLines]. Of status, id, record_time and stream, unknown and zero values are omitted. The
// handler may serve several outlets. It does not close w.
func DeadLetters(w io.Writer, destination string) ErrorHandler {
	return &jsonLines{w: w, lock: newCtxLock(), line: func(dst []byte, b *batch.Batch, rec *batch.Record, cause error) []byte {
		dst = append(dst, `{"time":"`...)
		dst = time.Now().UTC().AppendFormat(dst, time.RFC3339Nano)
		dst = append(dst, `","destination":`...)
		dst = jsontext.AppendString(dst, destination)
		var s interface{ HTTPStatus() int }
		if errors.As(cause, &s) && s.HTTPStatus() != 0 {
			dst = append(dst, `,"status":`...)
			dst = strconv.AppendInt(dst, int64(s.HTTPStatus()), 10)
		}
		dst = append(dst, `,"reason":`...)
		dst = jsontext.AppendString(dst, reason(cause))
		if b.Origin != [16]byte{} {
			dst = append(dst, `,"id":"`...)
			dst = hex.AppendEncode(dst, b.Origin[:])
			dst = append(dst, ':')
			dst = strconv.AppendUint(dst, rec.Ticket, 10)
			dst = append(dst, '"')
		}
		if rec.Time != 0 {
			dst = append(dst, `,"record_time":"`...)
			dst = time.Unix(0, rec.Time).UTC().AppendFormat(dst, time.RFC3339Nano)
			dst = append(dst, '"')
		}
		dst = append(dst, `,"level":`...)
		dst = jsontext.AppendString(dst, rec.Level.String())
		if rec.Stream != 0 {
			dst = append(dst, `,"stream":`...)
			dst = strconv.AppendUint(dst, uint64(rec.Stream), 10)
		}
		dst = append(dst, `,"record":`...)
		dst = appendRecord(dst, b.Codec, rec)
		return append(dst, "}\n"...)
	}}
}

// reason returns the text of the destination's error.
func reason(cause error) string {
	if cause == nil {
		return "refused"
	}
	return cause.Error()
}

// appendRecord appends rec as one JSON object on one line, without a newline, even if its codec fails.
// Bytes that no codec can read become {"raw":"…"}, or {"raw_base64":"…"} if they are not UTF-8 text.
func appendRecord(dst []byte, c batch.Codec, rec *batch.Record) []byte {
	at := len(dst)
	if c != nil {
		var ok bool
		if dst, ok = viaCodec(dst, c, rec); ok {
			return dst
		}
	}
	return appendRaw(dst[:at], rec.Data)
}

// viaCodec appends rec through its codec. If the codec panics or does not return a JSON object,
// viaCodec returns false, because one bad record must not break the line format of a dead-letter
// file.
func viaCodec(dst []byte, c batch.Codec, rec *batch.Record) (out []byte, ok bool) {
	at := len(dst)
	out = dst
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	made := c.AppendJSON(dst, rec.Data, rec.Meta)
	if len(made) <= at {
		return dst, false
	}
	obj := made[at:]
	if obj[0] != '{' || !json.Valid(obj) {
		return dst, false
	}
	// Newlines in valid JSON are white space between tokens.
	for i, ch := range obj {
		if ch == '\n' || ch == '\r' {
			obj[i] = ' '
		}
	}
	return made, true
}

// appendRaw appends data as a JSON object, without the codec. It omits a newline at the end of
// data.
func appendRaw(dst, data []byte) []byte {
	data = bytes.TrimSuffix(data, []byte{'\n'})
	if !utf8.Valid(data) {
		dst = append(dst, `{"raw_base64":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, data)
		return append(dst, `"}`...)
	}
	dst = append(dst, `{"raw":`...)
	dst = jsontext.AppendString(dst, string(data))
	return append(dst, '}')
}
