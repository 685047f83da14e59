package slab_test

import (
	"fmt"
	"time"

	"github.com/forebay-log/forebay/slab"
)

// A service writes 10 000 records of 256 bytes per second. The network destination answers in 10 ms
// and occasionally stalls for 200 ms.
func ExamplePlan() {
	s, err := slab.Plan(slab.Workload{
		Rate:        10_000,
		RecordBytes: 256,
		Latency:     10 * time.Millisecond,
		Spike:       200 * time.Millisecond,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s)
	fmt.Printf("Options{SlabBytes: %d, SlabCount: %d}\n", s.Options().SlabBytes, s.Options().SlabCount)
	fmt.Println("catches up in", s.CatchUp.Round(time.Millisecond))
	// Output:
	// 11 × 64 KiB = 704 KiB, absorbs 204.3ms
	// Options{SlabBytes: 65536, SlabCount: 11}
	// catches up in 157ms
}

// Absorb computes how long a stall existing slabs absorb.
func ExampleAbsorb() {
	w := slab.Workload{Rate: 10_000, RecordBytes: 256}
	s, err := slab.Absorb(w, 64<<10, 8)
	fmt.Println(s, err)
	// Output: 8 × 64 KiB = 512 KiB, absorbs 136.2ms <nil>
}

// No buffer is large enough for a destination that is permanently slower than the records arrive.
func ExamplePlan_tooSlow() {
	_, err := slab.Plan(slab.Workload{
		Rate:                20_000,
		RecordBytes:         256,
		DrainBytesPerSecond: 4 << 20,
		Spike:               time.Second,
	})
	fmt.Println(err)
	// Output:
	// slab: cannot plan: the destination is always too slow: it accepts 4 MiB/s (DrainBytesPerSecond) and 4.9 MiB/s arrive, so any buffer fills up: reduce the rate, use larger slabs, or use a faster destination or several destinations
}

// A local file at a moderate rate (quick reference 1). By the rule of thumb count·size/(R·M), 8 ×
// 64 KiB absorb 200 ms. In fact they absorb only 136 ms, because of the 32 bytes added to each
// record and the two slabs that are not free. Three more slabs are needed to absorb 200 ms.
func ExamplePlan_localFile() {
	w := slab.Workload{Rate: 10_000, RecordBytes: 256, Latency: time.Millisecond, Spike: 200 * time.Millisecond}
	given, _ := slab.Absorb(w, 64<<10, 8)
	planned, _ := slab.Plan(w)
	fmt.Println("given:  ", given)
	fmt.Println("planned:", planned)
	// Output:
	// given:   8 × 64 KiB = 512 KiB, absorbs 136.2ms
	// planned: 11 × 64 KiB = 704 KiB, absorbs 204.3ms
}

// The network at a high rate (quick reference 2). By the rule of thumb, 16 × 64 KiB absorb 80 ms.
// In fact they absorb 64 ms if a write takes up to 4.5 ms. If a write takes 10 ms, a slab must hold
// more than 500 records.
func ExamplePlan_network() {
	w := slab.Workload{Rate: 50_000, RecordBytes: 256, Latency: 4 * time.Millisecond, Spike: 80 * time.Millisecond}
	given, _ := slab.Absorb(w, 64<<10, 16)
	planned, _ := slab.Plan(w)
	fmt.Println("given:  ", given)
	fmt.Println("planned:", planned)

	w.Latency = 10 * time.Millisecond
	_, err := slab.Absorb(w, 64<<10, 16)
	planned, _ = slab.Plan(w)
	fmt.Println("given, 10 ms:  ", err)
	fmt.Println("planned, 10 ms:", planned)
	// Output:
	// given:   16 × 64 KiB = 1 MiB, absorbs 63.6ms
	// planned: 20 × 64 KiB = 1.2 MiB, absorbs 81.7ms
	// given, 10 ms:   slab: cannot size: the destination is always too slow: it accepts 5.5 MiB/s (one slab of 64 KiB per 10ms) and 12.2 MiB/s arrive, so any buffer fills up: reduce the rate, use larger slabs, or use a faster destination or several destinations
	// planned, 10 ms: 7 × 256 KiB = 1.8 MiB, absorbs 91ms
}

// A sidecar with little memory (quick reference 3). By the rule of thumb, 4 × 16 KiB absorb 25 ms.
// In fact they absorb only 11 ms, because half of the memory is in flight or being filled. A budget
// of 80 KiB with smaller slabs absorbs 25 ms.
func ExamplePlan_sidecar() {
	w := slab.Workload{Rate: 10_000, RecordBytes: 256, Latency: 500 * time.Microsecond, Spike: 25 * time.Millisecond}
	given, _ := slab.Absorb(w, 16<<10, 4)
	fmt.Println("given: ", given)

	w.MemoryBytes = 64 << 10
	best, err := slab.Plan(w)
	fmt.Println("64 KiB:", best)
	fmt.Println("       ", err)

	w.MemoryBytes = 80 << 10
	planned, _ := slab.Plan(w)
	fmt.Println("80 KiB:", planned)
	// Output:
	// given:  4 × 16 KiB = 64 KiB, absorbs 11.2ms
	// 64 KiB: 32 × 2 KiB = 64 KiB, absorbs 21ms
	//         slab: cannot plan: the memory budget is too small: absorbing 25ms needs 76 KiB; 64 KiB absorb 21ms
	// 80 KiB: 20 × 4 KiB = 80 KiB, absorbs 25.2ms
}

// A pipeline of 100 000 records of 200 bytes per second (quick reference 4). By the rule of thumb,
// 8 × 256 KiB absorb 100 ms. In fact they absorb only 68 ms.
func ExamplePlan_pipeline() {
	w := slab.Workload{Rate: 100_000, RecordBytes: 200, Latency: 10 * time.Millisecond, Spike: 100 * time.Millisecond}
	given, _ := slab.Absorb(w, 256<<10, 8)
	planned, _ := slab.Plan(w)
	fmt.Println("given:  ", given)
	fmt.Println("planned:", planned)
	// Output:
	// given:   8 × 256 KiB = 2 MiB, absorbs 67.7ms
	// planned: 11 × 256 KiB = 2.8 MiB, absorbs 101.6ms
}
