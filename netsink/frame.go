package netsink

import "strconv"

// appendCounted appends msg with its length before it: MSG-LEN SP SYSLOG-MSG
// (RFC 6587 §3.4.1).
func appendCounted(dst, msg []byte) []byte {
	dst = strconv.AppendInt(dst, int64(len(msg)), 10)
	dst = append(dst, ' ')
	return append(dst, msg...)
}
