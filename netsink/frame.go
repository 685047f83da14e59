package netsink

import (
	"strconv"

	"github.com/forebay-log/forebay/batch"
)

// frame appends a record to s.buf in the format of the destination: a syslog message with its
// length, or a line.
func (s *session) frame(c batch.Codec, rec *batch.Record) {
	if s.d.t.syslog {
		s.msg = s.d.o.message(s.msg[:0], c, rec)
		s.buf = appendCounted(s.buf, s.msg)
		if cap(s.msg) > keepBuf {
			s.msg = nil
		}
		return
	}
	s.buf = append(s.buf, rec.Data...)
	if n := len(rec.Data); n == 0 || rec.Data[n-1] != '\n' {
		s.buf = append(s.buf, '\n')
	}
}

// allEnd reports whether every record of b ends with a newline, so that records can be written
// unchanged.
func allEnd(b *batch.Batch) bool {
	for i := range b.Runs {
		r := &b.Runs[i]
		for j := range r.Len() {
			if rec := r.Record(j); len(rec) == 0 || rec[len(rec)-1] != '\n' {
				return false
			}
		}
	}
	return true
}

// appendCounted appends msg preceded by its length: MSG-LEN SP SYSLOG-MSG (RFC 6587 §3.4.1).
func appendCounted(dst, msg []byte) []byte {
	dst = strconv.AppendInt(dst, int64(len(msg)), 10)
	dst = append(dst, ' ')
	return append(dst, msg...)
}
