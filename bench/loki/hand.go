package main

import (
	"strconv"

	"github.com/forebay-log/forebay/encode"
)

func appendByHand(dst []byte, r *encode.Record) []byte {
	dst = append(dst, `["`...)
	dst = strconv.AppendInt(dst, r.Time.UnixNano(), 10)
	dst = append(dst, `","{\"Message\":\"`...)
	dst = appendClean(dst, r.Message)
	a := r.Attrs
	dst = append(dst, `\",\"UserId\":`...)
	dst = strconv.AppendInt(dst, a[0].Value.Int64(), 10)
	dst = append(dst, `,\"Action\":\"`...)
	dst = appendClean(dst, a[1].Value.String())
	dst = append(dst, `\",\"ResourceId\":\"`...)
	dst = appendClean(dst, a[2].Value.String())
	dst = append(dst, `\",\"Duration\":`...)
	dst = strconv.AppendFloat(dst, a[3].Value.Float64(), 'f', -1, 64)
	dst = append(dst, `,\"Success\":`...)
	dst = strconv.AppendBool(dst, a[4].Value.Bool())
	dst = append(dst, `,\"CorrelationId\":\"`...)
	dst = a[5].Value.Any().(uuid).append(dst)
	return append(dst, `\"}"]`...)
}

// appendClean appends s, in which nothing needs an escape.
func appendClean(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' || c >= 0x7f {
			return append(dst, strconv.Quote(s)...)
		}
	}
	return append(dst, s...)
}
