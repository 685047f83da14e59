package slab_test

import (
	"fmt"
	"time"

	"github.com/forebay-log/forebay/slab"
)

// A service writes 10 000 records of 256 bytes per second to a network
// destination that answers in 10 ms and now and then stalls for 200 ms.
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

// What slabs that are already there are good for.
func ExampleAbsorb() {
	w := slab.Workload{Rate: 10_000, RecordBytes: 256}
	s, err := slab.Absorb(w, 64<<10, 8)
	fmt.Println(s, err)
	// Output: 8 × 64 KiB = 512 KiB, absorbs 136.2ms <nil>
}

// A destination that cannot keep up is no case for a buffer.
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

// Quick reference 1: a local file at a moderate rate. The rule of thumb
// count·size/(R·M) promises 200 ms for 8 × 64 KiB; slots and the two slabs that
// are not free leave 136 ms. Three more absorb the 200 ms.
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

// Quick reference 2: the network at a high rate. The rule of thumb promises
// 80 ms for 16 × 64 KiB. They would absorb 64 ms, if a write took no more than
// 4.5 ms; at 10 ms a slab must hold more than 500 records.
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

// Quick reference 3: a sidecar with little memory. The rule of thumb promises
// 25 ms for 4 × 16 KiB; half of that is in flight or being filled, 11 ms remain.
// A budget of 80 KiB does absorb 25 ms, with smaller slabs.
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

// Quick reference 4: a pipeline of 100 000 records of 200 bytes per second. The
// rule of thumb promises 100 ms for 8 × 256 KiB; 68 ms remain.
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
