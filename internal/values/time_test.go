package values

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestUnixNanoBeyondInt64(t *testing.T) {
	for _, c := range []struct {
		sec, ns int64
		want    string
	}{
		{0, 0, "0"}, {1, 5, "1000000005"}, {-1, 5, "-999999995"}, {-1, 0, "-1000000000"}, {0, 999999999, "999999999"},
		{1 << 40, 5, "1099511627776000000005"}, {-1 << 40, 0, "-1099511627776000000000"}, {-1 << 40, 999999995, "-1099511627775000000005"},
	} {
		if got := string(appendUnix(nil, time.Unix(c.sec, c.ns), 1e9)); got != c.want {
			t.Errorf("%d.%09d: got %s want %s", c.sec, c.ns, got, c.want)
		}
	}
	tm := time.Unix(1<<40, 123456789)
	if got := string(appendUnix(nil, tm, 1e6)); got != "1099511627776123456" {
		t.Error(got)
	}
	if got := string(appendUnix(nil, time.Unix(-1<<52, 987654321), 1e6)); got != "-4503599627370495012346" {
		t.Error(got)
	}
}

func TestRFC3339AsInPackageTime(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip(err)
	}
	spec := TimeSpec{}
	const layout = "2006-01-02T15:04:05.000000000Z07:00"
	rng := rand.New(rand.NewPCG(3, 4))
	var c Times
	check := func(tm time.Time) {
		t.Helper()
		for slot := range 2 {
			if got, want := string(spec.Append(nil, tm, &c, slot)), tm.Format(layout); got != want {
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
			continue // offsets of local mean time have seconds; they are tested below
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
	// Times that RFC 3339 cannot represent are written as package time does.
	for _, at := range []time.Time{
		time.Date(10000, 1, 1, 0, 0, 0, 1, time.UTC), time.Date(-1, 12, 31, 0, 0, 0, 1, time.UTC),
		time.Date(1880, 1, 1, 0, 0, 0, 1, berlin), time.Date(2000, 1, 1, 0, 0, 0, 1, time.FixedZone("", 90)),
		time.Date(2000, 1, 1, 0, 0, 0, 1, time.FixedZone("", -30)), time.Date(2000, 1, 1, 0, 0, 0, 1, time.FixedZone("", 100*3600)),
		time.Unix(math.MaxInt64/2, 1).UTC(), time.Unix(math.MinInt64/2, 1).UTC(),
	} {
		if got, want := string(spec.Append(nil, at, &c, 0)), at.Format(time.RFC3339Nano); got != want {
			t.Errorf("got %s want %s", got, want)
		}
	}
}
