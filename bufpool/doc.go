// Package bufpool provides pooled byte slices in size classes, so that scratch and batch buffers do
// not allocate.
//
//	pool, err := bufpool.New(bufpool.Config{}) // 20 classes, 2 B to 1 MiB
//	...
//	buf, _ := pool.Get(3000) // len 3000, cap 4096, all zero
//	defer pool.Put(buf)
//
// In steady state Get and Put do not allocate. A [Pool] is safe for concurrent use. It retains at
// most [Config.MaxRetainedBytes] of free buffers per class. After each garbage collection it drops
// the buffers that were not needed since the previous one. It accepts only whole buffers that it
// returned.
//
//	Get ─▶ in use ─ Put ─▶ free: cache, or stack of a list ─▶ dropped after a collection
//	 ▲                       │
//	 └───────────────────────┘
//
// # Appending
//
// An encoder gets a buffer, appends to buf[:0], and puts the resulting slice:
//
//	buf, _ := pool.Get(256)
//	buf = pool.Grow(buf[:0], len(msg)) // has room, and belongs to the pool
//	buf = append(buf, msg...)
//	pool.Put(buf)
//
// Append without Grow also works, but beyond the capacity it moves the bytes to newly allocated
// memory. Put then refuses the new slice and counts it in [Refusals], and the old buffer counts as
// [ClassStats.Lost] once it is collected: the program is correct, but the buffer is not reused. If
// this happens often, request a larger buffer, or use [Pool.Grow].
//
// # Choosing classes
//
// Classes should match the sizes that the program requests. At least 80 % of the requests should
// fall into a class ([Stats].Coverage), because every other request allocates. Every Get clears the
// whole buffer, so a class much larger than the request wastes time as well as memory. With powers
// of two, up to half of a buffer is wasted. Classes in between waste less memory per buffer, but
// then the free buffers of each class serve fewer requests, so that the pool misses more often and
// retains more. Classes within a factor of two of each other are searched linearly. If there are
// none, the time to find a class is constant.
//
// Use [Pool.Stats] to check the choice:
//   - Coverage below 0.8, or Oversize rising: add a larger class.
//   - Misses close to Gets, with Discarded rising: more buffers are in use at once than the limit
//     allows to retain; raise MaxRetainedBytes.
//   - Misses close to Gets, with Released rising: the class is used less than once per collection; it
//     is not needed.
//   - Misses close to Gets, with Lost rising: callers do not call Put.
//   - A class with few Gets: merge it with the next one.
//   - Refused.NoClass or Refused.Foreign rising: callers outgrow their buffers by append, or reslice
//     them from the front.
//
// # Implementation
//
// Each class has several lists of free buffers. A goroutine selects one by the address of its stack.
// A list has a cache for one buffer, which is taken and returned with one compare-and-swap each, and a
// stack with a lock. If both are empty, or the lock is busy, the other lists are tried. The pool
// recognizes its buffers by address, in a table that Put reads without a lock.
//
// The finalizer of a sentinel object runs after each garbage collection. If a list has always held
// at least n free buffers since the previous collection, the finalizer drops n of them. A finalizer
// on each buffer notifies the pool if the buffer is dropped in use. Until then its memory is not
// reused, so that no other slice can be mistaken for it. Do not set a finalizer on the first byte
// of a buffer: the runtime allows only one, and terminates the program at the second.
//
// docs/adr/0007 explains the use of lists instead of sync.Pool, and the table.
package bufpool
