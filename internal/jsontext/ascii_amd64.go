package jsontext

import "golang.org/x/sys/cpu"

// haveVectors reports whether copyASCIIVectors may be called: the processor and the operating
// system support AVX2. GODEBUG=cpu.avx2=off sets it to false.
var haveVectors = cpu.X86.HasAVX2

// copyASCIIVectors is like [copyASCIIWords], but n must be at least 32. The bytes of dst after the
// prefix are undefined.
//
//go:noescape
func copyASCIIVectors(dst, src *byte, n int) int
