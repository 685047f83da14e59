package encode

import (
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"time"
)

func TestTimeRFC3339(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip(err)
	}
	spec := timeSpec{TimeRFC3339Nano, nil}
	const layout = "2006-01-02T15:04:05.000000000Z07:00"
	rng := rand.New(rand.NewPCG(3, 4))
	var c timeCache
	check := func(tm time.Time) {
		t.Helper()
		for slot := range 2 {
			if got, want := string(spec.append(nil, tm, &c, slot)), tm.Format(layout); got != want {
				t.Fatalf("%d: got %s want %s", tm.Unix(), got, want)
			}
		}
	}
	locs := []*time.Location{time.UTC, berlin, time.FixedZone("", -(9*3600 + 30*60)), time.FixedZone("", 14*3600), time.Local}
	for day := int64(-62167219200); day <= 253402300799; day += 86400 * 37 {
		check(time.Unix(day, 0).UTC())
	}
	for i := range 5000 {
		sec := rng.Int64N(253402300799-86400*2+62167219200) - 62167219200 + 86400
		tm := time.Unix(sec, rng.Int64N(1e9)).In(locs[i%len(locs)])
		if _, off := tm.Zone(); off%60 != 0 {
			continue // local mean time: below
		}
		check(tm)
		check(tm.Add(time.Nanosecond))
		check(tm.Add(time.Second))
	}
	for _, edge := range []time.Time{
		time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC),
		time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC), time.Date(2000, 2, 29, 0, 0, 0, 0, time.UTC), time.Date(1900, 3, 1, 0, 0, 0, 0, time.UTC),
		time.Date(0, 2, 29, 0, 0, 0, 0, time.UTC), time.Date(0, 3, 1, 0, 0, 0, 0, time.UTC),
	} {
		check(edge)
	}
	// What RFC 3339 has no room for is written as Go does it.
	for _, odd := range []time.Time{
		time.Date(10000, 1, 1, 0, 0, 0, 1, time.UTC), time.Date(-1, 12, 31, 0, 0, 0, 1, time.UTC),
		time.Date(1880, 1, 1, 0, 0, 0, 1, berlin), time.Date(2000, 1, 1, 0, 0, 0, 1, time.FixedZone("", 90)),
		time.Date(2000, 1, 1, 0, 0, 0, 1, time.FixedZone("", -30)), time.Date(2000, 1, 1, 0, 0, 0, 1, time.FixedZone("", 100*3600)),
		time.Unix(math.MaxInt64/2, 1).UTC(), time.Unix(math.MinInt64/2, 1).UTC(),
	} {
		if got, want := string(spec.append(nil, odd, &c, 0)), odd.Format(time.RFC3339Nano); got != want {
			t.Errorf("got %s want %s", got, want)
		}
	}
}

func seedBytes(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, 7))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// effort scales the work of a random test: n is for a plain run, the race
// detector does a tenth of it, and FOREBAY_TORTURE a hundred times as much.
func effort(n int) int {
	switch {
	case os.Getenv("FOREBAY_TORTURE") != "":
		return 100 * n
	case raceEnabled || testing.Short():
		return n / 10
	}
	return n
}
