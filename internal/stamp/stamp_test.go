package stamp

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/forebay-log/forebay/internal/testkit/allocs"
)

func TestFindReadsEveryForm(t *testing.T) {
	cet := time.FixedZone("CET", 3600)
	for _, c := range []struct {
		line string
		want string // RFC 3339 in UTC, with a leading ~ if there is no year; "" if there is no time
	}{
		{"2006-01-02T15:04:05Z x", "2006-01-02T15:04:05Z"},
		{"2006-01-02T15:04:05.123456789Z", "2006-01-02T15:04:05.123456789Z"},
		{"2006-01-02t15:04:05.5+02:00 x", "2006-01-02T13:04:05.5Z"},
		{"2006-01-02 15:04:05,747 - INFO", "2006-01-02T14:04:05.747Z"},
		{"2006-01-02 15:04:05 +0000 UTC m=+0.1", "2006-01-02T15:04:05Z"},
		{"2006-01-02 15:04:05 -0730", "2006-01-02T22:34:05Z"},
		{"2006-01-02 15:04:05 UTC [12] LOG:", "2006-01-02T15:04:05Z"},
		{"2006-01-02 15:04:05 Zoo", "2006-01-02T14:04:05Z"},
		{"host app[12]: 2006-01-02 15:04:05", "2006-01-02T14:04:05Z"},
		{"nova-api.log.1.2017-05-16_13:53:08 2017-05-16 00:00:00.008 25746 INFO", "2017-05-15T23:00:00.008Z"},
		{"time=2006-01-02T15:04:05Z level=INFO", "2006-01-02T15:04:05Z"},
		{"[Sun Dec 04 04:47:44 2005] [notice] x", "2005-12-04T03:47:44Z"},
		{"[Wed Oct 11 14:32:52.123456 2000] [core:error]", "2000-10-11T13:32:52.123456Z"},
		{"Mon Jan  2 15:04:05 2006 x", "2006-01-02T14:04:05Z"},
		{"Date: Mon, 02 Jan 2006 15:04:05 GMT", "2006-01-02T15:04:05Z"},
		{"Mon, 02 Jan 2006 15:04:05 -0700", "2006-01-02T22:04:05Z"},
		{"081109 203615 148 INFO dfs", "2008-11-09T19:36:15Z"},
		{"Dec 10 06:55:46 LabSZ sshd[24200]: x", "~2000-12-10T06:55:46Z"},
		{"Feb 29 06:55:46 x", "~2000-02-29T06:55:46Z"},
		{"<34>Oct  1 22:14:15 mymachine su: x", "~2000-10-01T22:14:15Z"},
		{`127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 2326`, "2000-10-10T20:55:36Z"},
		{"2006/01/02 15:04:05.000001 main.go:1: x", "2006-01-02T14:04:05.000001Z"},
		{"2006/01/02 15:04:05 [error] 12#0: x", "2006-01-02T14:04:05Z"},
		{"17/06/09 20:10:40 INFO executor", "2017-06-09T19:10:40Z"},
		{"I0102 15:04:05.678901 12 x.go:3] x", "~2000-01-02T15:04:05.678901Z"},
		{"1157689312.049 5006 10.105.21.199 TCP_MISS", "2006-09-08T04:21:52.049Z"},
		{"1700000000123 x", "2023-11-14T22:13:20.123Z"},
		{"Nov 23 2026 10:11:12.5 x", "2026-11-23T09:11:12.5Z"},
		{"Nov 23, 2026 3:04:05 PM com.example.Main main", "2026-11-23T14:04:05Z"},
		{"Nov 3, 2026 12:04:05\u202fAM x", "2026-11-02T23:04:05Z"},
		{"Nov 23, 2026 12:04:05 PM", "2026-11-23T11:04:05Z"},
		{"23-Nov-2026 10:11:12.345 INFO [main] x", "2026-11-23T09:11:12.345Z"},
		{"1:M 23 Nov 2026 10:11:12.345 * Ready", "2026-11-23T09:11:12.345Z"},
		{"3 Nov 2026 10:11:12,345 INFO x", "2026-11-03T09:11:12.345Z"},
		{"11-23 10:11:12.345  1234  5678 I Tag: x", "~2000-11-23T10:11:12.345Z"},
		{"Tue Oct 10 13:55:36 UTC 2023", "2023-10-10T13:55:36Z"}, // written by date(1), and by Date.toString of Java
		{"Tue Oct 10 13:55:36 GMT 2023 x", "2023-10-10T13:55:36Z"},
		{"Tue Oct 10 13:55:36 Z 2023 x", "2023-10-10T13:55:36Z"},
		{"[Tue Oct 10 13:55:36 CEST 2023] x", "2023-10-10T12:55:36Z"}, // the zone is unknown, so the caller's zone is used
		{"Mon Jan  2 15:04:05 MST 2006", "2006-01-02T14:04:05Z"},
		{"Mon Jan 02 15:04:05 -0700 2006", "2006-01-02T22:04:05Z"},
		{"Tue Oct 10 13:55:36 +0200 2023", "2023-10-10T11:55:36Z"},
		{"Tue Oct 10 13:55:36 +05:45 2023", "2023-10-10T08:10:36Z"},
		{"Tue Oct 10 13:55:36 +03 2023", "2023-10-10T10:55:36Z"},
		{"Tue Oct 10 13:55:36 GMT+03:00 2023", "2023-10-10T10:55:36Z"},
		{"Tue Oct 10 13:55:36.123 UTC 2023", "2023-10-10T13:55:36.123Z"},
		{"Tue Oct 10 01:55:36 PM UTC 2023", "2023-10-10T13:55:36Z"},
		{"Tue Oct 10 13:55:36 AMT 2023", "2023-10-10T12:55:36Z"},
		{"Tue Oct 10 01:55:36 PM 2023", "2023-10-10T12:55:36Z"},
		{"Tue Oct 10 13:55:36 PM UTC 2023", "~2000-10-10T13:55:36Z"},
		{"Tue Oct 10 12:55:36 AM CET 2023", "2023-10-09T23:55:36Z"},
		{"Tue Oct 10 13:55:36 2023", "2023-10-10T12:55:36Z"},
		{"Thu Feb 29 13:55:36 UTC 2024", "2024-02-29T13:55:36Z"},
		{"Tue Oct 10 13:55:36 INFO 1235 x", "~2000-10-10T13:55:36Z"}, // 10 October 1235 was not a Tuesday
		{"Tue Oct 10 13:55:36 UTC 20234", "~2000-10-10T13:55:36Z"},
		{"Tue Oct 10 13:55:36 UTC", "~2000-10-10T13:55:36Z"},
		{"Tue Oct 10 13:55:36 host 2023", "~2000-10-10T13:55:36Z"},
		{"Tue Oct 10 13:55:36 +9900 2023", "~2000-10-10T13:55:36Z"},
		{"Tue Oct 10 13:55:36 +02+02 2023", "~2000-10-10T13:55:36Z"},
		{"Tue Oct 10 13:55:36 CET+02 2023", "~2000-10-10T13:55:36Z"},
		{"2016-12-31T23:59:60Z leap", "2016-12-31T23:59:59Z"},

		{"2026-11-20 10:11:12.5-08", "2026-11-20T18:11:12.5Z"}, // written by PostgreSQL
		{"2026-11-20 10:11:12 +03 [12] LOG", "2026-11-20T07:11:12Z"},
		{"2026-11-20 10:11:12 -03.5 degrees", "2026-11-20T09:11:12Z"},
		{"2026-11-20 10:11:12-123 x", "2026-11-20T09:11:12Z"},
		{"2026-11-20 9:11:12 x", "2026-11-20T08:11:12Z"},
		{"2026-11-20 10:11:12:123 x", "2026-11-20T09:11:12.123Z"},
		{"2026-11-20 10:11:12:7 x", "2026-11-20T09:11:12.007Z"},
		{"2026-11-20 10:11:12:1234 x", "2026-11-20T09:11:12Z"},
		{"20171223-22:15:29:60|Step_LSC|", "2017-12-23T21:15:29.06Z"},
		{"- 1131566461 2005.11.09 dn228 Nov 9 12:01:01 dn228/dn228 crond", "2005-11-09T20:01:01Z"},
		{"- 1117838570 2005.06.03 R02-M1 2005-06-03-15.42.50.675872 R02-M1 RAS", "2005-06-03T22:42:50.675872Z"},
		{"- 1131566461 2004.11.09 dn228 Nov 9 12:01:01 x", "~2000-11-09T12:01:01Z"}, // the number and the date mean different days
		{"2005-06-03-15.42.50.675872 x", "2005-06-03T14:42:50.675872Z"},
		{"type=CRED msg=audit(1795169472.123:77): x", "2026-11-20T10:11:12.123Z"},
		{"[1795169472] SERVICE ALERT: x", "2026-11-20T10:11:12Z"},
		{"x [1795169472] y", ""},
		{"[1795169472:x] y", ""},
		{"2026.11.20 10:11:12.123456 [ 1 ] {} <Error> x", "2026-11-20T09:11:12.123456Z"},
		{"261120 10:11:12 [Note] x", "2026-11-20T09:11:12Z"},
		{"261120  9:11:12 [Note] x", "2026-11-20T08:11:12Z"},
		{"20261120T101112Z x", "2026-11-20T10:11:12Z"},
		{"20261120T101112.5+0100 x", "2026-11-20T09:11:12.5Z"},
		{"20.11.2026 10:11:12 x", "2026-11-20T09:11:12Z"},
		{"20.11.2026, 9:11:12 x", "2026-11-20T08:11:12Z"},
		{"[20-Nov-2026 10:11:12 Europe/Berlin] x", "2026-11-20T09:11:12Z"},
		{"2026-07-20 10:11:12 America/New_York x", "2026-07-20T14:11:12Z"},
		{"2026-07-20 10:11:12 Europe/Atlantis x", "2026-07-20T09:11:12Z"},
		{"2026-11-20 10:11:12 Africa x", "2026-11-20T09:11:12Z"},
		{"I0102 15:04:05.000000 12 x.go:3] x", "~2000-01-02T15:04:05Z"},
		{"I20261120 10:11:12.000000 12 x.go:3] x", "2026-11-20T09:11:12Z"},
		{"82: *Nov 20 10:11:12.123: %SYS-5-CONFIG_I: x", "~2000-11-20T10:11:12.123Z"},
		{": 2026 Nov 20 10:11:12 UTC: %ETHPORT-5-IF_UP: x", "2026-11-20T10:11:12Z"},
		{"Nov 20 2026 10:11:12 host : %ASA-6-302013: x", "2026-11-20T09:11:12Z"},
		{"Nov 20 10:11:12 h haproxy[1]: 10.0.0.1:3 [20/Nov/2026:10:11:11.987] fe", "2026-11-20T09:11:11.987Z"},
		{"[20/Nov/2026 10:11:12] \"GET / HTTP/1.1\" 200", "2026-11-20T09:11:12Z"},
		{"Fri Nov 20 2026 10:11:12 GMT+0100 (CET) x", "2026-11-20T09:11:12Z"},
		{"[123] 20 Nov 10:11:12.123 * Ready", "~2000-11-20T10:11:12.123Z"},

		{"", ""},
		{"x", ""},
		{"Nov 23, 2026 13:04:05 PM", ""},
		{"Nov 23, 2026 0:04:05 AM", ""},
		{"Nov 23, 2026 3:04:05 XM", ""},
		{"Nov 23, 2026", ""},
		{"23 Nov-2026 10:11:12", ""},
		{"31-Nov-2026 10:11:12", ""},
		{"23", ""},
		{"11-23 10:11:12 x", ""},
		{"x 11-23 10:11:12.345", ""},
		{"13-23 10:11:12.345 x", ""},
		{"2006-01-02", ""},
		{"2006-13-02T15:04:05Z", ""},
		{"2006-02-30T15:04:05Z", ""},
		{"2006-01-02T25:04:05Z", ""},
		{"12006-01-02T15:04:05Z", ""},
		{"2006-01-02T15:04:055Z", ""},
		{"Decade 10 06:55:46", ""},
		{"I0102 is no time", ""},
		{"081109 203615148", ""},
		{"123456789 is a number", ""},
		{"12345678901x", ""},
		{"call +49 170 0000000 now", ""},
		{string(bytes.Repeat([]byte("x "), 60)) + "2006-01-02T15:04:05Z", ""},
	} {
		got, ok := Find([]byte(c.line), cet)
		s := ""
		if ok {
			s = got.Time.UTC().Format(time.RFC3339Nano)
			if got.Yearless {
				s = "~" + s
			}
		}
		if s != c.want {
			t.Errorf("%q: got %q, want %q", c.line, s, c.want)
		}
	}
}

func TestFromNumberDetectsUnit(t *testing.T) {
	for s, want := range map[string]string{
		"1700000000":          "2023-11-14T22:13:20Z",
		"1700000000.5":        "2023-11-14T22:13:20.5Z",
		"1700000000123":       "2023-11-14T22:13:20.123Z",
		"1700000000123.25":    "2023-11-14T22:13:20.12325Z",
		"1700000000123456":    "2023-11-14T22:13:20.123456Z",
		"1700000000123456789": "2023-11-14T22:13:20.123456789Z",
	} {
		if got, ok := FromNumber(s); !ok || got.Format(time.RFC3339Nano) != want {
			t.Errorf("%s: %s, %v, want %s", s, got, ok, want)
		}
	}
	for _, s := range []string{"", "1", "-1700000000", "1.7e9", "1700000000.x", "99999999999999999999", "9999999999999999999"} {
		if got, ok := FromNumber(s); ok {
			t.Errorf("%q: %s", s, got)
		}
	}
}

// Every line of the sample logs has a time, except lines that the collectors of the logs added.
func TestLinesOfSampleLogsHaveTimes(t *testing.T) {
	for name, year := range map[string]bool{"Apache": true, "HDFS": true, "OpenSSH": false, "OpenStack": true, "Zookeeper": true} {
		b, err := os.ReadFile(filepath.Join("..", "..", "testdata", "logs", name+".log"))
		if err != nil {
			t.Fatal(err)
		}
		total, found := 0, 0
		for line := range bytes.Lines(b) {
			total++
			at, ok := Find(line, time.UTC)
			if !ok {
				continue
			}
			found++
			if at.Yearless == year || year && (at.Time.Year() < 2005 || at.Time.Year() > 2017) {
				t.Errorf("%s: %q: %+v", name, line, at)
			}
		}
		if found != total || total < 1999 {
			t.Errorf("%s: a time in %d of %d lines", name, found, total)
		}
	}
}

func TestFindDoesNotAllocate(t *testing.T) {
	for _, s := range []string{
		"2015-07-29 17:41:44,747 - INFO  [QuorumPeer[myid=1]] - Notification time out: 3200",
		"Tue Oct 10 13:55:36 UTC 2023 x",
		"1234567890 bytes sent",
	} {
		line := []byte(s)
		if n := allocs.PerRun(100, func() { Find(line, time.UTC); FindText(line, time.UTC, nil) }); n != 0 {
			t.Errorf("%q: %g allocations", s, n)
		}
	}
}

// checkFastPath checks that the fast path has the same result as trying all forms. A space after
// the time makes Find try all forms.
func checkFastPath(t *testing.T, line []byte) (read bool) {
	t.Helper()
	at, ok := rfc3339(line)
	if !ok {
		return false
	}
	loc := time.FixedZone("", 3600)
	if want, ok := Find(append(line[:len(line):len(line)], ' '), loc); !ok || want.Yearless || at != want.Time {
		t.Fatalf("%q: %v, want %v", line, at, want.Time)
	}
	return true
}

func TestFastPathEqualsTable(t *testing.T) {
	for s, want := range map[string]bool{
		"2006-01-02T15:04:05Z": true, "2006-01-02T15:04:05.1Z": true, "2006-01-02T15:04:05.123456789Z": true,
		"0000-01-01T00:00:00Z": true, "9999-12-31T23:59:59.999999999Z": true, "2024-02-29T00:00:00Z": true, "2006-02-28T15:04:05Z": true,
		"2023-02-29T00:00:00Z": false, "2023-04-31T00:00:00Z": false, "2023-00-01T00:00:00Z": false, "2023-13-01T00:00:00Z": false, "2023-01-00T00:00:00Z": false,
		"2006-01-02T24:00:00Z": false, "2006-01-02T15:60:00Z": false, "2006-01-02T15:04:60Z": false,
		"2006-01-02T15:04:05.Z": false, "2006-01-02T15:04:05.1234567890Z": false, "2006-01-02T15:04:05,5Z": false, "2006-01-02T15:04:05": false,
		"2006-01-02T15:04:05+01:00": false, "x006-01-02T15:04:05Z": false, "20x6-01-02T15:04:05Z": false, "2006-01-02T15:04:05.1x3Z": false, "": false, "Z": false,
	} {
		if got := checkFastPath(t, []byte(s)); got != want {
			t.Errorf("%q: %v, want %v", s, got, want)
		}
	}
	line := []byte("2024-02-29T23:59:59.987654321Z")
	for i := range line {
		had := line[i]
		for c := range 256 {
			line[i] = byte(c)
			checkFastPath(t, line)
		}
		line[i] = had
	}
}

func FuzzFind(f *testing.F) {
	for _, s := range []string{"2006-01-02T15:04:05+01:00", "2006-01-02T15:04:05+01:05", "Dec 10 06:55:46", "[Sun Dec 04 04:47:44 2005]", "081109 203615", "I0102 15:04:05.6", "1700000000.1",
		"Nov 23 2026 10:11:12", "Nov 3, 2026 12:04:05\u202fAM", "23-Nov-2026 10:11:12.3", "11-23 10:11:12.3",
		"Tue Oct 10 13:55:36 UTC 2023", "Tue Oct 10 01:55:36 PM +03 2023", "1234567890 x", "1234567890 Dec 10 06:55:46"} {
		f.Add([]byte(s))
	}
	f.Add([]byte("2006-01-02T15:04:05.9Z"))
	f.Fuzz(func(t *testing.T, line []byte) {
		checkFastPath(t, line)
		at, ok := Find(line, time.UTC)
		if ok && (at.Time.IsZero() && !at.Yearless || at.Yearless && at.Time.Year() != 2000 || at.From >= at.To || at.To > len(line)) {
			t.Errorf("%q: %+v", line, at)
		}
		now := func() time.Time { return time.Unix(1.8e9, 0) }
		text, textOK := FindText(line, time.UTC, now)
		if at.Time.String() != text.Time.String() && (!ok || at.Form.Name != "seconds since 1970" || near(at.Time, now())) {
			t.Errorf("%q: %+v, as text %+v, %v", line, at, text, textOK)
		}
		if start, ok := At(line, time.UTC); ok && start.From != 0 {
			t.Errorf("%q: %+v", line, start)
		}
	})
}

// The fast computation of dates equals time.Date for each day of the calendar.
func TestDatesEqualTimeDate(t *testing.T) {
	for year := 1800; year <= 2200; year++ { // the calendar repeats after 400 years
		for month := range 14 {
			for day := range 33 {
				want := time.Date(year, time.Month(month), day, 23, 59, 58, 999_999_999, time.UTC)
				exists := want.Month() == time.Month(month) && want.Day() == day
				if isDay(year, month, day) != exists {
					t.Fatalf("isDay(%d, %d, %d) is %v", year, month, day, !exists)
				}
				if got := utc(year, month, day, 23, 59, 58, 999_999_999); exists && got != want {
					t.Fatalf("%v, want %v", got, want)
				}
			}
		}
	}
}
