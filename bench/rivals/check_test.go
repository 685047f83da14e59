package rivals

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	_ "github.com/forebay-log/forebay/bench/utc"
)

var (
	nativeScenarios = []Scenario{Message, Two, Six, TenMixed, ContextTen, Disabled, Plain1K, UTF81K, Stack1K}
	slogScenarios   = []Scenario{Message, Two, TenScalar, TenMixed, ContextTen, Group}
)

func std(w io.Writer) slog.Handler {
	return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.LevelInfo})
}

// The output of each competitor has exactly the listed defects. If a new release of a competitor
// changes its defects, the comparison changes.
func TestDefectsOfRivalsAreKnown(t *testing.T) {
	phusluFaults := "keys not escaped; invalid UTF-8 not replaced; control characters not escaped"
	for _, tc := range []struct {
		name      string
		l         Native
		scenarios []Scenario
		want      string              // defects in every scenario
		also      map[Scenario]string // additional defects in a scenario, which precede want
	}{
		{name: "zap", l: Zap, scenarios: nativeScenarios},
		{name: "zerolog", l: Zerolog, scenarios: nativeScenarios},
		{name: "slog", l: Slog, scenarios: nativeScenarios},
		{name: "phuslu", l: Phuslu, scenarios: nativeScenarios, want: phusluFaults},
		{name: "zapslog", l: Handler(ZapHandler), scenarios: slogScenarios},
		{name: "zerolog slog", l: Handler(ZerologHandler), scenarios: slogScenarios,
			also: map[Scenario]string{Group: `field "request" is <nil>, not map[method:GET status:200]`}},
		{name: "slog.JSONHandler", l: Handler(std), scenarios: slogScenarios},
		{name: "phuslu slog", l: Handler(PhusluHandler), scenarios: slogScenarios, want: phusluFaults},
	} {
		for _, s := range tc.scenarios {
			got := strings.Join(Check(tc.l, s), "; ")
			want := strings.TrimPrefix(tc.also[s]+"; "+tc.want, "; ")
			if want = strings.TrimSuffix(want, "; "); got != want {
				t.Errorf("%s, scenario %d: faults %q, want %q", tc.name, s, got, want)
			}
		}
	}
}

// The records of all native loggers have the same length, except for the digits of the time.
func TestRecordsHaveEqualLength(t *testing.T) {
	for _, s := range []Scenario{Message, Two, Six, TenMixed, ContextTen, Plain1K} {
		var lengths []int
		for _, l := range []Native{Zap, Zerolog, Phuslu, Slog} {
			var out bytes.Buffer
			l(&out, s)(0, 1)
			lengths = append(lengths, out.Len())
		}
		for _, n := range lengths {
			if d := n - lengths[0]; d < -8 || d > 8 {
				t.Errorf("scenario %d: records of %v bytes", s, lengths)
				break
			}
		}
	}
}

// Check detects each defect of a record.
func TestCheckerDetectsEachDefect(t *testing.T) {
	stamp := time.Now().UTC().Format("2006-01-02T15:04:05.000000000Z07:00")
	good := `{"time":"` + stamp + `","level":"info","msg":"` + Text + `","method":"GET","status":200}`
	fixed := func(line string) Native {
		return func(w io.Writer, _ Scenario) Run {
			return func(_, n int) {
				for range n {
					io.WriteString(w, line)
				}
			}
		}
	}
	if err := checkRecord(fixed(good+"\n"), Two); err != nil {
		t.Fatalf("the good record is at fault: %v", err)
	}
	for name, line := range map[string]string{
		"no newline":       good,
		"two lines":        good + "\n" + good + "\n",
		"nothing":          "",
		"no JSON":          good[1:] + "\n",
		"not UTF-8":        strings.Replace(good, "GET", "G\xffT", 1) + "\n",
		"milliseconds":     strings.Replace(good, stamp, stamp[:23]+"Z", 1) + "\n",
		"old time":         strings.Replace(good, stamp, "2001-02-03T04:05:06.123456789Z", 1) + "\n",
		"no time":          strings.Replace(good, `"time"`, `"tame"`, 1) + "\n",
		"wrong level":      strings.Replace(good, "info", "warn", 1) + "\n",
		"wrong message":    strings.Replace(good, Text, "x", 1) + "\n",
		"wrong value":      strings.Replace(good, "200", "201", 1) + "\n",
		"missing field":    strings.Replace(good, `,"status":200`, "", 1) + "\n",
		"unexpected field": strings.Replace(good, `"status":200`, `"status":200,"x":1`, 1) + "\n",
		"repeated field":   strings.Replace(good, `"status":200`, `"status":1,"status":200`, 1) + "\n",
	} {
		if checkRecord(fixed(line), Two) == nil {
			t.Errorf("%s: not noticed", name)
		}
	}
	if checkRecord(fixed("x\n"), Disabled) == nil {
		t.Error("a disabled call that writes was not noticed")
	}
}

// Every writer delivers all bytes in order.
func TestWritersDeliverInOrder(t *testing.T) {
	var want strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&want, "record %d\n", i)
	}
	for name, mk := range map[string]func(io.Writer) Writer{
		"bufio":  func(w io.Writer) Writer { return NewBufio(w, 512) },
		"bws":    func(w io.Writer) Writer { return NewBWS(w, 512) },
		"source": func(w io.Writer) Writer { return NewSourceSlab(w, 512, 3) },
	} {
		var out bytes.Buffer
		w := mk(&out)
		for line := range strings.Lines(want.String()) {
			p := []byte(line)
			if _, err := w.Write(p); err != nil {
				t.Fatal(err)
			}
			clear(p) // a writer must not retain p after Write returns
		}
		if err := w.Drain(); err != nil {
			t.Fatal(err)
		}
		if out.String() != want.String() {
			t.Errorf("%s: %d bytes arrived, want %d", name, out.Len(), want.Len())
		}
	}
}
