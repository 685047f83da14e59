package jsontext

import (
	"encoding/binary"
	"math"
	"math/bits"
	"strconv"
	"time"
)

// AppendBool appends true or false.
func AppendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, "true"...)
	}
	return append(dst, "false"...)
}

// AppendSeconds appends d as a decimal number of seconds.
func AppendSeconds(dst []byte, d time.Duration) []byte {
	v := uint64(d)
	if d < 0 {
		dst = append(dst, '-')
		v = -v
	}
	sec := v / 1e9
	dst = AppendUint(dst, sec)
	ns := uint32(v - sec*1e9)
	if ns == 0 {
		return dst
	}
	dst = appendNanos(append(dst, '.'), ns)
	for dst[len(dst)-1] == '0' {
		dst = dst[:len(dst)-1]
	}
	return dst
}

// AppendUnixNano appends ns, a time in Unix nanoseconds, as a decimal number. A time before 1970
// becomes 0.
func AppendUnixNano(dst []byte, ns int64) []byte {
	if ns < 1e18 {
		return AppendUint(dst, uint64(max(ns, 0)))
	}
	// Since 2001 the number has 19 digits.
	n := len(dst)
	dst = Spare(dst, 24)[:n+19]
	sec := uint64(ns) / 1e9 // ten digits
	rest := uint32(uint64(ns) - sec*1e9)
	high := uint32(sec / 100)
	b := dst[n : n+19]
	binary.LittleEndian.PutUint64(b, Digits8(high))
	low := 2 * (sec - uint64(high)*100)
	b[8], b[9] = Pairs[low], Pairs[low+1]
	q := rest / 10
	binary.LittleEndian.PutUint64(b[10:], Digits8(q))
	b[18] = byte('0' + rest - q*10)
	return dst
}

// Spare returns dst with capacity for n more bytes.
func Spare(dst []byte, n int) []byte {
	if cap(dst)-len(dst) < n {
		return grow(dst, n)
	}
	return dst
}

//go:noinline
func grow(dst []byte, n int) []byte {
	return append(dst, make([]byte, n)...)[:len(dst)]
}

// Digits8 returns the eight decimal digits of v < 1e8 as ASCII, the first digit in the lowest byte.
// It splits the number in halves three times, all parts in parallel, instead of dividing by ten
// eight times.
func Digits8(v uint32) uint64 {
	hi := uint64(v / 10000)
	x := hi | (uint64(v)-hi*10000)<<32
	hundreds := (x * 10486 >> 20) & 0x0000007F_0000007F
	x = hundreds | (x-100*hundreds)<<16
	tens := (x * 103 >> 10) & 0x000F000F_000F000F
	x = tens | (x-10*tens)<<8
	return x | 0x30303030_30303030
}

// leadingZeros and trailingZeros return the number of '0' digits at the start and at the end of a
// result of Digits8. The number must not be 0.
func leadingZeros(x uint64) int { return bits.TrailingZeros64(x^0x30303030_30303030) >> 3 }

func trailingZeros(x uint64) int { return bits.LeadingZeros64(x^0x30303030_30303030) >> 3 }

// appendNanos appends ns, 0 to 999999999, as nine digits.
func appendNanos(dst []byte, ns uint32) []byte {
	n := len(dst)
	dst = Spare(dst, 9)[:n+9]
	q := ns / 10
	binary.LittleEndian.PutUint64(dst[n:], Digits8(q))
	dst[n+8] = byte('0' + ns - q*10)
	return dst
}

const Pairs = "0001020304050607080910111213141516171819" +
	"2021222324252627282930313233343536373839" +
	"4041424344454647484950515253545556575859" +
	"6061626364656667686970717273747576777879" +
	"8081828384858687888990919293949596979899"

// AppendUint appends v in decimal.
func AppendUint(dst []byte, v uint64) []byte {
	switch {
	case v < 10:
		return append(dst, byte('0'+v))
	case v < 100:
		return append(dst, Pairs[2*v], Pairs[2*v+1])
	case v < 10000:
		hi := v / 100
		lo := v - hi*100
		if hi < 10 {
			return append(dst, byte('0'+hi), Pairs[2*lo], Pairs[2*lo+1])
		}
		return append(dst, Pairs[2*hi], Pairs[2*hi+1], Pairs[2*lo], Pairs[2*lo+1])
	case v < 1e8:
		// All eight digits are computed at once, and the leading zeros are removed by a shift.
		n := len(dst)
		dst = Spare(dst, 8)
		x := Digits8(uint32(v))
		zeros := leadingZeros(x)
		binary.LittleEndian.PutUint64(dst[n:n+8], x>>(8*zeros&63))
		return dst[:n+8-zeros]
	}
	return appendLarge(dst, v)
}

// appendLarge implements AppendUint for numbers with more than eight digits.
func appendLarge(dst []byte, v uint64) []byte {
	hi := v / 1e8
	dst = AppendUint(dst, hi)
	n := len(dst)
	dst = Spare(dst, 8)[:n+8]
	binary.LittleEndian.PutUint64(dst[n:], Digits8(uint32(v-hi*1e8)))
	return dst
}

// AppendInt appends v in decimal.
func AppendInt(dst []byte, v int64) []byte {
	if v < 0 {
		dst, v = append(dst, '-'), -v
	}
	return AppendUint(dst, uint64(v))
}

// AppendFloat appends a finite f as encoding/json does: the shortest digits that parse to f,
// without an exponent from 1e-6 to 1e21.
func AppendFloat(dst []byte, f float64, size int) []byte {
	abs := math.Abs(f)
	if size == 64 && abs < 1e9 && abs >= 1e-3 {
		// Most logged floats have at most six decimals. Both operands of n/1e6 are exact, so the
		// result is the float nearest to that decimal. If the result equals f, the decimal parses
		// to f. It is also the shortest such decimal, because different decimals of up to 15 digits
		// are different floats.
		if n := uint64(abs*1e6 + 0.5); float64(n)/1e6 == abs {
			if f < 0 {
				dst = append(dst, '-')
			}
			whole := n / 1e6
			return appendFraction(AppendUint(dst, whole), uint32(n-whole*1e6))
		}
	}
	if f == 0 && !math.Signbit(f) {
		return append(dst, '0')
	}
	format := byte('f')
	if abs != 0 {
		if size == 64 && (abs < 1e-6 || abs >= 1e21) ||
			size == 32 && (float32(abs) < 1e-6 || float32(abs) >= 1e21) {
			format = 'e'
		}
	}
	dst = strconv.AppendFloat(dst, f, format, -1, size)
	if n := len(dst); format == 'e' && dst[n-4] == 'e' && dst[n-3] == '-' && dst[n-2] == '0' {
		dst[n-2] = dst[n-1] // e-09 becomes e-9
		dst = dst[:n-1]
	}
	return dst
}

// appendFraction appends micro, less than 1e6, as a decimal fraction. It appends nothing for 0.
func appendFraction(dst []byte, micro uint32) []byte {
	if micro == 0 {
		return dst
	}
	x := Digits8(micro * 100) // six digits and two zeros
	n := len(dst)
	dst = Spare(dst, 9)
	dst[:n+1][n] = '.'
	binary.LittleEndian.PutUint64(dst[n+1:n+9], x)
	return dst[:n+9-trailingZeros(x)]
}
