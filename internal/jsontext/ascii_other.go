//go:build !amd64

package jsontext

const haveVectors = false

func copyASCIIVectors(dst, src *byte, n int) int { return copyASCIIWords(dst, src, n) }
