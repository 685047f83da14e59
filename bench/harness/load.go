package harness

import (
	"fmt"
	"os"
	"runtime"
	"time"
)

// A loadMeter measures the processor time used by other processes. It needs /proc/stat.
type loadMeter struct {
	start     time.Time
	own, busy time.Duration
}

func startLoadMeter() loadMeter {
	busy, _ := machineBusy()
	return loadMeter{time.Now(), cpuTime(), busy}
}

// others returns the share of processor time, 0 to 1, that other processes and the hypervisor have
// used since the start. It returns -1 if the share is unknown.
func (m loadMeter) others() float64 {
	busy, ok := machineBusy()
	capacity := time.Since(m.start) * time.Duration(runtime.NumCPU())
	if !ok || capacity <= 0 {
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
	// Guest times are already included in user and nice.
	var user, nice, system, idle, iowait, irq, softirq, steal time.Duration
	_, err = fmt.Sscanf(string(b), "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal)
	return (user + nice + system + irq + softirq + steal) * tickTime, err == nil
}
