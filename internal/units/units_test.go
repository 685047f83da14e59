package units

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestSizesAreParsedAndFormatted(t *testing.T) {
	for s, want := range map[string]int64{
		"0": 0, "512": 512, "512B": 512, "64KiB": 64 << 10, "64k": 64 << 10, "64K": 64 << 10, "64Ki": 64 << 10, "1MB": 1e6,
		"1.5 MiB": 3 << 19, "2g": 2 << 30, " 1 TiB ": 1 << 40, "65_536": 65536, "0.5k": 512,
	} {
		if got, err := ParseSize(s); got != want || err != nil {
			t.Errorf("ParseSize(%q) = %d, %v, want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "x", "-1", "1 parsec", "1e3", "KiB", "9999999999TiB", "NaN", "1.2.3"} {
		if got, err := ParseSize(s); err == nil || !strings.Contains(err.Error(), "such as") {
			t.Errorf("ParseSize(%q) = %d, %v", s, got, err)
		}
	}
	for n, want := range map[float64]string{0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 64 << 10: "64 KiB", 1<<20 - 1: "1 MiB", 1258291: "1.2 MiB", 5e18: "4.3 EiB"} {
		if got := Size(n); got != want {
			t.Errorf("Size(%g) = %q, want %q", n, got, want)
		}
	}
	for _, n := range []int64{0, 1, 1000, 1024, 1 << 20, 3 << 30, 64<<10 + 1} {
		if got, err := ParseSize(FlagSize(n)); got != n || err != nil {
			t.Errorf("%d written as %q reads %d, %v", n, FlagSize(n), got, err)
		}
	}
}

func TestRatesAreParsedAndFormatted(t *testing.T) {
	for s, want := range map[string]float64{"10000": 10000, "10k/s": 10000, "10k": 10000, "1.5M/s": 1.5e6, "600/min": 10, "3600/h": 1, "86400 / day": 1, "0.5": 0.5} {
		if got, err := ParseRate(s); math.Abs(got-want) > 1e-9 || err != nil {
			t.Errorf("ParseRate(%q) = %g, %v, want %g", s, got, err, want)
		}
	}
	for _, s := range []string{"", "x", "-1", "10/fortnight", "10q/s", "/s"} {
		if got, err := ParseRate(s); err == nil || !strings.Contains(err.Error(), "10k/s") {
			t.Errorf("ParseRate(%q) = %g, %v", s, got, err)
		}
	}
	for v, want := range map[float64]string{0: "0", 0.25: "0.25", 3: "3", 9.5: "9.5", 10: "10", 1234: "1234", 12345: "12 345", 1234567: "1 234 567", 2.5e7: "25.0M", 3e10: "30G", math.Inf(1): "unlimited"} {
		if got := Rate(v); got != want {
			t.Errorf("Rate(%g) = %q, want %q", v, got, want)
		}
	}
	if got := Count(1234567); got != "1 234 567" {
		t.Error(got)
	}
}

func TestDurationsAreParsedAndFormatted(t *testing.T) {
	for s, want := range map[string]time.Duration{"250ms": 250 * time.Millisecond, "7d": 168 * time.Hour, "0.5d": 12 * time.Hour, "1h30m": 90 * time.Minute, "0": 0} {
		if got, err := ParseDuration(s); got != want || err != nil {
			t.Errorf("ParseDuration(%q) = %s, %v, want %s", s, got, err, want)
		}
	}
	for _, s := range []string{"", "x", "-1s", "-1d", "5", "d", "1d2h"} {
		if got, err := ParseDuration(s); err == nil || !strings.Contains(err.Error(), "such as") {
			t.Errorf("ParseDuration(%q) = %s, %v", s, got, err)
		}
	}
	for d, want := range map[time.Duration]string{
		0: "0s", 1500: "1.5µs", 1234567: "1.23ms", 203_412_345: "203.4ms", 1_538_461_538: "1.54s", 7382 * time.Second: "2h3m2s",
	} {
		if got := Duration(d); got != want {
			t.Errorf("Duration(%d) = %q, want %q", d, got, want)
		}
	}
}
