//go:build ppc64 || s390x || mips || mips64

package slab

const bigEndian = true
