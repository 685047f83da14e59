//go:build ppc64 || s390x || mips || mips64

package slablog

const bigEndian = true
