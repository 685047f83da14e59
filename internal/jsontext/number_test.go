package jsontext_test

import (
	"encoding/json"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/testkit"
)

func TestIntsEqualStrconv(t *testing.T) {
	check := func(v uint64) {
		t.Helper()
		if got, want := string(jsontext.AppendUint([]byte("x"), v)), "x"+strconv.FormatUint(v, 10); got != want {
			t.Fatalf("got %s want %s", got, want)
		}
		if got, want := string(jsontext.AppendInt(nil, int64(v))), strconv.FormatInt(int64(v), 10); got != want {
			t.Fatalf("got %s want %s", got, want)
		}
	}
	for v := range uint64(effort(50_000)) {
		check(v)
	}
	for p := uint64(1); ; p *= 10 {
		for d := range uint64(3) {
			check(p - 1 + d)
			check(-p + d)
		}
		if p > math.MaxUint64/10 {
			break
		}
	}
	rng := testkit.Rand(testkit.Seed(t))
	for range effort(50_000) {
		check(rng.Uint64() >> rng.UintN(64))
	}
}

func checkFloat(t *testing.T, f float64) {
	t.Helper()
	want, err := json.Marshal(f)
	if err != nil {
		return // NaN and the infinities
	}
	if got := string(jsontext.AppendFloat([]byte("x"), f, 64)); got != "x"+string(want) {
		t.Fatalf("%b: got %s want %s", f, got, want)
	}
	f32 := float32(f)
	if want, err = json.Marshal(f32); err != nil {
		return
	}
	if got := string(jsontext.AppendFloat(nil, float64(f32), 32)); got != string(want) {
		t.Fatalf("float32 %b: got %s want %s", f32, got, want)
	}
}

func TestFloatsEqualEncodingJSON(t *testing.T) {
	for _, f := range []float64{0, math.Copysign(0, -1), 1, -1, 0.1, 0.5, 1.5, 1e-3, 1e-6, 1e-7, 9.99e-7, 0.001, 0.0009999999999999999, 1e20, 1e21, 1e22, 123456789, 1e9, 999999999.999999,
		1e15, 1 << 53, 1<<53 + 2, math.MaxFloat64, math.SmallestNonzeroFloat64, math.Pi, 1.0 / 3, 0.3, 0.1 + 0.2, 100.25, 2.675, 1e-5, 4.35, 0.000001, 999999.9999995, 0.9999995, 0.0049995} {
		checkFloat(t, f)
		checkFloat(t, -f)
		checkFloat(t, math.Nextafter(f, 1e300))
		checkFloat(t, math.Nextafter(f, -1e300))
	}
	rng := testkit.Rand(testkit.Seed(t))
	for range effort(100_000) {
		checkFloat(t, math.Float64frombits(rng.Uint64()))
		checkFloat(t, float64(rng.IntN(1e9))/1e6)
		checkFloat(t, float64(rng.Int64N(1e15))/1e6)
		checkFloat(t, rng.Float64()*float64(int(1)<<rng.UintN(31)))
	}
}

func FuzzFloat(f *testing.F) {
	f.Add(1.25)
	f.Fuzz(func(t *testing.T, v float64) { checkFloat(t, v) })
}

func TestSecondsAreExact(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0", time.Second: "1", 1500 * time.Millisecond: "1.5", -time.Nanosecond: "-0.000000001", 90 * time.Minute: "5400",
		math.MaxInt64: "9223372036.854775807", math.MinInt64: "-9223372036.854775808", 10 * time.Millisecond: "0.01",
	} {
		if got := string(jsontext.AppendSeconds(nil, d)); got != want {
			t.Errorf("%v: got %s want %s", d, got, want)
		}
	}
}
