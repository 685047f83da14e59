package bufpool_test

import (
	"fmt"

	"github.com/forebay-log/forebay/bufpool"
)

// The example of docs/MIGRATING-slab-allocator.md.
func Example_migrating() {
	pool, err := bufpool.New(bufpool.Config{
		SizeClasses: []int{1024, 4096, 16384, 65536},
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	buffer, class := pool.Get(2048) // class is 4096
	fmt.Println(len(buffer), class)

	pool.Put(buffer)

	totals := pool.Totals() // for frequent calls
	stats := pool.Stats()   // for occasional calls, by class
	fmt.Println(totals, stats.Classes[1].Puts)

	large, class := pool.Get(1 << 20) // larger than every class: allocated, not pooled
	fmt.Println(len(large), class, pool.Stats().Oversize)
	// Output:
	// 2048 4096
	// {1 1} 1
	// 1048576 0 1
}

// Totals gives the ratio of allocations to Gets, and is cheap enough for frequent calls.
func ExamplePool_Totals() {
	pool, err := bufpool.New(bufpool.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 10 {
		buf, _ := pool.Get(1000)
		pool.Put(buf)
	}
	t := pool.Totals()
	fmt.Printf("%d of %d Gets allocated\n", t.Misses, t.Gets)
	// Output: 1 of 10 Gets allocated
}
