// Package bufpool lends out byte slices in size classes and takes them back, so
// that scratch and batch buffers cost no allocation.
//
//	pool, err := bufpool.New(bufpool.Config{}) // 20 classes, 2 B to 1 MiB
//	...
//	buf, _ := pool.Get(3000) // len 3000, cap 4096, all of it zero
//	defer pool.Put(buf)
//
// In steady state a Get and a Put allocate nothing. A [Pool] is safe for concurrent use.
// It keeps at most [Config.MaxRetainedBytes] of free buffers per class. After each garbage
// collection it gives up the buffers that were not needed since the one before. It never
// takes in a slice that is not a whole buffer of its own.
//
// # Appending
//
// An encoder gets a buffer, appends to buf[:0], and puts the slice that it ends up with:
//
//	buf, _ := pool.Get(256)
//	buf = pool.Grow(buf[:0], len(msg)) // room for what comes, still the pool's
//	buf = append(buf, msg...)
//	pool.Put(buf)
//
// Append alone also works, but beyond the capacity it moves the bytes to memory of its own.
// Put then refuses the new slice and counts it in [Refusals], and the old buffer counts as
// [ClassStats.Lost] once it is collected: nothing breaks, but nothing is reused. If that
// happens often, ask for more at first, or use [Pool.Grow].
//
// # Choosing classes
//
// Classes should match the sizes the program asks for. At least 80 % of the
// requests should fall into a class ([Stats].Coverage); each of the rest is a
// plain allocation. Every Get clears its whole class, so a class much larger
// than the request wastes time as well as memory: up to half of a buffer
// with powers of two, less with classes in between. More classes waste less
// memory on each buffer. Fewer classes share their free buffers between more requests,
// and so miss less and retain less. The search for a class costs the same either
// way as long as no two classes lie within a factor of two; otherwise it is a
// linear search among those that do.
//
// [Pool.Stats] tells whether the choice was right:
//   - Coverage below 0.8, or Oversize rising: add a larger class.
//   - Misses close to Gets, with Discarded rising: more buffers are in use at
//     once than the ceiling lets come back; raise MaxRetainedBytes.
//   - Misses close to Gets, with Released rising: the class is used less than
//     once per collection; it need not exist.
//   - Misses close to Gets, with Lost rising: callers do not Put.
//   - A class with few Gets: merge it with the next one.
//   - Refused.NoClass or Refused.Foreign rising: callers outgrow their buffers
//     by append, or reslice them from the front.
//
// # How it works
//
// Each class has several lists of free buffers. A goroutine picks one by the address of its
// stack. A list has a seat for one buffer, which one compare-and-swap takes and another
// gives back, and behind it a stack with a lock. If both are empty, or the lock is busy, the
// other lists are tried. The pool knows its buffers by address, in a table that Put reads
// without a lock.
//
// The finalizer of a sentinel object runs after each garbage collection. It drops from every
// list as many buffers as the list had at its emptiest since the collection before. A
// finalizer on each buffer tells the pool if the buffer is dropped in use. Until then nobody
// else gets its memory, so that no other slice passes for it. Do not set a finalizer of your
// own on the first byte of a buffer: the runtime allows one, and ends the program at the
// second.
//
// docs/adr/0007 tells why there are lists and not sync.Pool, and why
// there is a table.
package bufpool
