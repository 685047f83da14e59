package main

import "fmt"

// operation returns the error of an Exception event. The inner error is created stackDepth calls
// below operation, and the outer error at half of this depth. The bits of i select the call sites,
// so stacks differ but begin alike, as in a service.
func operation(i int) error { return serve(uint(i), i, stackDepth) }

//go:noinline
func serve(path uint, i, depth int) error {
	switch path & 3 {
	case 0:
		return query(path>>2, i, depth-1)
	case 1:
		return query(path>>2, i, depth-1)
	case 2:
		return query(path>>2, i, depth-1)
	}
	return query(path>>2, i, depth-1)
}

//go:noinline
func query(path uint, i, depth int) error {
	switch {
	case depth <= 0:
		return newTraced(fmt.Sprintf("dial tcp 10.0.%d.%d:5432: connection refused", i>>8&255, i&255), nil)
	case depth == stackDepth/2:
		return newTraced("charge failed", serve(path>>2, i, depth-1))
	case path&3 == 0:
		return serve(path>>2, i, depth-1)
	case path&3 == 1:
		return serve(path>>2, i, depth-1)
	case path&3 == 2:
		return serve(path>>2, i, depth-1)
	}
	return serve(path>>2, i, depth-1)
}
