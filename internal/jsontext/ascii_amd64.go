package jsontext

// copyASCII copies the longest prefix of src that can be copied unchecked to dst, and returns its
// length. The prefix contains only ASCII, without control characters, '"' and '\\'. n is the length
// of src and dst and must be at least 16. The bytes of dst after the prefix are undefined.
//
//go:noescape
func copyASCII(dst, src *byte, n int) int
