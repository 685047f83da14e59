package harness

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// A loadMeter measures the processor time of other processes. It needs /proc/stat.
type loadMeter struct {
	start     time.Time
	own, busy time.Duration
	ok        bool
}

func startLoadMeter() loadMeter {
	m := loadMeter{start: time.Now(), own: cpuTime()}
	m.busy, m.ok = machineBusy()
	return m
}

// others returns the share of all processors that other processes and the hypervisor have used since
// the start: 0 to 1, or -1 if it is unknown.
func (m loadMeter) others() float64 {
	busy, ok := machineBusy()
	capacity := time.Since(m.start) * time.Duration(runtime.NumCPU())
	if !m.ok || !ok || capacity <= 0 {
		return -1
	}
	used := (busy - m.busy) - (cpuTime() - m.own)
	return max(0, min(1, float64(used)/float64(capacity)))
}

// tickTime is the unit of /proc/stat, which is 100 Hz on every Linux that Go
// runs on.
const tickTime = 10 * time.Millisecond

// machineBusy returns the busy time of all processors.
func machineBusy() (time.Duration, bool) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, false
	}
	line, _, _ := strings.Cut(string(b), "\n")
	f := strings.Fields(line)
	// cpu user nice system idle iowait irq softirq steal guest guest_nice; the
	// guests are in user and nice already.
	if len(f) < 9 || f[0] != "cpu" {
		return 0, false
	}
	var ticks int64
	for i, v := range f[1:9] {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return 0, false
		}
		if i != 3 && i != 4 {
			ticks += n
		}
	}
	return time.Duration(ticks) * tickTime, true
}
