package bufpool_test

import (
	"fmt"

	"github.com/forebay-log/forebay/bufpool"
)

func ExamplePool() {
	pool, err := bufpool.New(bufpool.Config{SizeClasses: []int{256, 4096, 65536}})
	if err != nil {
		fmt.Println(err)
		return
	}
	buf, class := pool.Get(1000)
	fmt.Println(len(buf), cap(buf), class)
	pool.Put(buf)

	buf, class = pool.Get(100_000)
	fmt.Println(len(buf), class)
	pool.Put(buf) // dropped: larger than every class

	s := pool.Stats()
	fmt.Println(s.Classes[1].Retained, s.Oversize, s.Refused.Oversize, s.Coverage)
	// Output:
	// 1000 4096 4096
	// 100000 0
	// 1 1 1 0.5
}

func ExampleNew() {
	_, err := bufpool.New(bufpool.Config{SizeClasses: []int{64, 4096, 1024}})
	fmt.Println(err)
	// Output:
	// bufpool: cannot make a pool: SizeClasses[2] is 1024, less than 4096 before it: sort the classes, smallest first
}

func ExamplePool_Grow() {
	pool, err := bufpool.New(bufpool.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	buf, _ := pool.Get(8)
	buf = buf[:0]
	for _, word := range []string{"accepted ", "and ", "accounted ", "for"} {
		buf = pool.Grow(buf, len(word))
		buf = append(buf, word...)
	}
	fmt.Printf("%s, capacity %d\n", buf, cap(buf))
	pool.Put(buf)
	fmt.Println(pool.Stats().Refused)
	// Output:
	// accepted and accounted for, capacity 32
	// {0 0 0 0}
}

// Debug mode reports misuse. Call Faults and Leaks at the end of a test.
func ExamplePool_Faults() {
	pool, err := bufpool.New(bufpool.Config{Debug: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	buf, _ := pool.Get(100)
	pool.Put(buf)
	pool.Put(buf)
	buf[5] = 1
	for _, f := range pool.Faults() {
		fmt.Println(f.Kind, f.Class, f.Offset)
	}
	fmt.Println(len(pool.Leaks()), "leaks")
	// Output:
	// double Put 128 0
	// write after Put 128 5
	// 0 leaks
}

// The pool has one class more than the default.
func ExampleDefaultSizeClasses() {
	pool, err := bufpool.New(bufpool.Config{SizeClasses: append(bufpool.DefaultSizeClasses(), 4<<20)})
	if err != nil {
		fmt.Println(err)
		return
	}
	buf, _ := pool.Get(3 << 20)
	fmt.Println(len(buf), cap(buf))
	pool.Put(buf)
	// Output: 3145728 4194304
}
