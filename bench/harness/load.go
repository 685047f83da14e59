package harness

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// A loadMeter measures the processor time used by other processes. It needs /proc/stat.
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

// others returns the share of processor time, 0 to 1, that other processes and the hypervisor have
// used since the start. It returns -1 if the share is unknown.
func (m loadMeter) others() float64 {
	busy, ok := machineBusy()
	capacity := time.Since(m.start) * time.Duration(runtime.NumCPU())
	if !m.ok || !ok || capacity <= 0 {
		return -1
	}
	used := (busy - m.busy) - (cpuTime() - m.own)
	return max(0, min(1, float64(used)/float64(capacity)))
}

// tickTime is the unit of times in /proc/stat: 1/100 s on every Linux that Go supports.
const tickTime = 10 * time.Millisecond

// machineBusy returns the time that all processors together have been busy.
func machineBusy() (time.Duration, bool) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, false
	}
	line, _, _ := strings.Cut(string(b), "\n")
	f := strings.Fields(line)
	// The fields are: cpu user nice system idle iowait irq softirq steal guest guest_nice. The
	// guest times are already included in user and nice.
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
