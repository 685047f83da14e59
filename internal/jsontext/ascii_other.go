//go:build !amd64

package jsontext

// copyASCII copies the longest prefix of src that can be copied unchecked to dst, and returns its
// length. The prefix contains only ASCII, without control characters, '"' and '\\'. n is the length
// of src and dst and must be at least 16.
func copyASCII(dst, src *byte, n int) int { return copyASCIIWords(dst, src, n) }
