package fluent

import (
	"github.com/forebay-log/forebay/bufpool"
)

// Sizes of memory, in bytes, and the condition for returning to a smaller size.
const (
	// ownScratchBytes is the size of the buffer that each valuer owns. Most records fit. Post
	// borrows memory from scratch for larger records.
	ownScratchBytes = 1 << 10
	// maxScratchBytes is the size of the largest record that uses borrowed memory: the default of
	// MaxRecord, 1 MiB, and space for the beginning of the entry. maxSendBytes is the size of the
	// largest write from borrowed memory. Larger memory is allocated and left to the garbage
	// collector.
	maxScratchBytes = 1<<20 + 4<<10
	maxSendBytes    = 8 << 20
	// shrinkAfter is the number of consecutive records of at most ownScratchBytes after which a
	// valuer stops borrowing.
	shrinkAfter = 1 << 10
)

// scratch is the pool of memory for large records and for frames. All Drivers of the process share
// it.
var scratch = newScratch(false)

// newScratch returns a pool. With debug, the pool detects memory that is used after it was
// returned. Only tests set debug.
func newScratch(debug bool) *bufpool.Pool {
	p, err := bufpool.New(bufpool.Config{
		// The sizes are powers of four, frames of the default size, and windows of such frames.
		SizeClasses: []int{4 << 10, 16 << 10, 64 << 10, 68 << 10, 272 << 10, maxScratchBytes, 4 << 20, maxSendBytes},
		NoZero:      true, // only written bytes are read
		Debug:       debug,
	})
	if err != nil {
		panic(err) // the configuration is constant
	}
	return p
}
