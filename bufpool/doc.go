// Package bufpool lends out byte slices in size classes and takes them back, so
// that scratch and batch buffers cost no allocation.
//
//	pool, err := bufpool.New(bufpool.Config{}) // 20 classes, 2 B to 1 MiB
//	...
//	buf, _ := pool.Get(3000) // len 3000, cap 4096, all of it zero
//	defer pool.Put(buf)
//
// In steady state a Get and a Put allocate nothing. A [Pool] is safe for
// concurrent use, keeps at most [Config.MaxRetainedBytes] of free buffers per
// class, gives back after each garbage collection what was not needed since the
// one before, and never takes in anything that is not a whole buffer of its own.
//
// # Appending
//
// An encoder that appends gets a buffer, appends to buf[:0], and puts what it
// ends up with:
//
//	buf, _ := pool.Get(256)
//	buf = pool.Grow(buf[:0], len(msg)) // room for what comes, still the pool's
//	buf = append(buf, msg...)
//	pool.Put(buf)
//
// Append alone also works, but when it outgrows the capacity it moves the bytes
// to memory of its own. Put then refuses the new slice and counts it in
// [Refusals], and the outgrown buffer counts as [ClassStats.Lost] once it is
// collected: nothing breaks, but nothing is reused. Where that happens often,
// ask for more at first, or use [Pool.Grow].
//
// # Choosing classes
//
// Classes should match the sizes the program asks for. At least 80 % of the
// requests should fall into a class ([Stats.Coverage]); each of the rest is a
// plain allocation. Every Get clears its whole class, so a class much larger
// than what is asked of it wastes time as well as memory: up to half of a buffer
// with powers of two, less with classes in between. More classes waste less
// memory on each buffer; fewer share their free buffers between more requests,
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
// Each class has some lists of free buffers; a goroutine picks one by where its
// own stack lies. A list has a seat, whose buffer one compare-and-swap takes and
// another gives back, and behind it a stack with a lock; when both are empty or
// the lock is busy, the other lists are tried. Which buffers are the pool's is
// known by address, in a table that Put reads without a lock.
//
// The finalizer of a sentinel object runs after each garbage collection and drops
// from every list as many buffers as it had at its emptiest since the last one. A
// finalizer on each buffer tells the pool if it is dropped while in use; until
// then its memory is nobody else's, so that no other slice passes for it. Do not
// set a finalizer of your own on the first byte of a buffer: the runtime allows
// one, and ends the program at the second.
//
// docs/adr/0007 and 0008 tell why there are lists and not sync.Pool, and why
// there is a table.
package bufpool
