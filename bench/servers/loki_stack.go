package main

import "fmt"

// operation returns an error of Exception: its inner error is created stackDepth calls below, and the
// outer one halfway. The bits of i select the call sites, so that stacks differ and share their
// beginnings, as in a service.
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
		return throw(fmt.Sprintf("dial tcp 10.0.%d.%d:5432: connection refused", i>>8&255, i&255), nil)
	case depth == stackDepth/2:
		return throw("charge failed", serve(path>>2, i, depth-1))
	case path&3 == 0:
		return serve(path>>2, i, depth-1)
	case path&3 == 1:
		return serve(path>>2, i, depth-1)
	case path&3 == 2:
		return serve(path>>2, i, depth-1)
	}
	return serve(path>>2, i, depth-1)
}
