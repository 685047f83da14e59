// Package units parses and formats quantities: sizes in bytes, rates per second, and durations in
// days.
package units

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// suffixes are the units of sizes. Units with an i and single letters are powers of 1024, because
// single letters in configuration files usually mean that. Units such as kB, without an i, are
// powers of 1000.
var suffixes = map[string]float64{
	"": 1, "b": 1,
	"k": 1 << 10, "ki": 1 << 10, "kib": 1 << 10, "kb": 1e3,
	"m": 1 << 20, "mi": 1 << 20, "mib": 1 << 20, "mb": 1e6,
	"g": 1 << 30, "gi": 1 << 30, "gib": 1 << 30, "gb": 1e9,
	"t": 1 << 40, "ti": 1 << 40, "tib": 1 << 40, "tb": 1e12,
}

// MinFileSize is the minimum size, in bytes, at which a log file may rotate. A smaller size is a
// mistake: usually its unit is missing, as in 100 for 100 MiB.
const MinFileSize = 4 << 10

// ParseSize parses a number of bytes such as "65536", "64KiB", "64k" or "1.5 MB".
func ParseSize(s string) (int64, error) {
	num, unit := split(s)
	f, ok := suffixes[strings.ToLower(unit)]
	v, err := strconv.ParseFloat(num, 64)
	if v *= f; !ok || err != nil || !(v >= 0 && v < math.MaxInt64) {
		return 0, fmt.Errorf("%q is not a size: write a number and B, KiB, MiB or GiB, such as 64KiB", s)
	}
	return int64(v), nil
}

// Size formats a number of bytes, such as "512 B", "64 KiB" or "1.2 MiB".
func Size(n float64) string {
	const units = "KMGTPE"
	unit := -1
	for n >= 1023.95 && unit < len(units)-1 {
		n /= 1024
		unit++
	}
	if unit < 0 {
		return number(n) + " B"
	}
	return number(n) + " " + units[unit:unit+1] + "iB"
}

// number formats v with one decimal, or without decimals if v is an integer or large.
func number(v float64) string {
	if v == math.Trunc(v) || v >= 1000 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	s := strconv.FormatFloat(v, 'f', 1, 64)
	return strings.TrimSuffix(s, ".0")
}

// FlagSize formats n so that [ParseSize] returns exactly n, such as "64KiB".
func FlagSize(n int64) string {
	for _, u := range []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.size && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// ParseRate parses a number per second such as "10000", "10k/s", "1.5M/s", "600/min" or "86400/h".
func ParseRate(s string) (float64, error) {
	per := 1.0
	body, unit, found := strings.Cut(s, "/")
	if found {
		switch strings.TrimSpace(unit) {
		case "s", "sec", "second":
		case "m", "min", "minute":
			per = 60
		case "h", "hour":
			per = 3600
		case "d", "day":
			per = 86400
		default:
			body = "" // causes the error below
		}
	}
	num, suffix := split(body)
	factor, ok := map[string]float64{"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "m": 1e6, "G": 1e9}[suffix]
	v, err := strconv.ParseFloat(num, 64)
	if v = v * factor / per; !ok || err != nil || !(v >= 0) || math.IsInf(v, 1) {
		return 0, fmt.Errorf("%q is not a rate: write a number per second, such as 10k/s, or 600/min", s)
	}
	return v, nil
}

// Rate formats a number per second, such as "10 000" or "0.25". Large numbers have three digits and
// a letter.
func Rate(v float64) string {
	switch {
	case math.IsInf(v, 1):
		return "unlimited"
	case v >= 1e10:
		return strconv.FormatFloat(v/1e9, 'f', 0, 64) + "G"
	case v >= 1e7:
		return strconv.FormatFloat(v/1e6, 'f', 1, 64) + "M"
	case v >= 10:
		return group(strconv.FormatFloat(v, 'f', 0, 64))
	case v == math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

// Count formats n with a space between groups of three digits. A number of up to four digits has no
// space.
func Count(n uint64) string { return group(strconv.FormatUint(n, 10)) }

func group(digits string) string {
	if len(digits) <= 4 {
		return digits
	}
	var sb strings.Builder
	for i, c := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			sb.WriteByte(' ')
		}
		sb.WriteRune(c)
	}
	return sb.String()
}

// ParseDuration is like time.ParseDuration, and also accepts days such as "7d" or "1.5d".
func ParseDuration(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		v, err := strconv.ParseFloat(days, 64)
		if d := v * 24 * float64(time.Hour); err == nil && d >= 0 && d < math.MaxInt64 {
			return time.Duration(d), nil
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a duration: write a number and ms, s, m, h or d, such as 250ms", s)
	}
	return d, nil
}

// Duration formats a duration with about three digits, such as "203ms", "1.54s" or "2h3m0s".
func Duration(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= 10*time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d >= 10*time.Microsecond:
		return d.Round(100 * time.Nanosecond).String()
	}
	return d.String()
}

// split returns the number at the beginning of s, and the unit after it.
func split(s string) (num, unit string) {
	s = strings.TrimSpace(s)
	i := strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && r != '.' && r != '_' })
	if i < 0 {
		i = len(s)
	}
	return strings.ReplaceAll(s[:i], "_", ""), strings.TrimSpace(s[i:])
}
