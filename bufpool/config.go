package bufpool

import "fmt"

const (
	// defaultMaxRetainedBytes is the default limit of one class.
	defaultMaxRetainedBytes = 4 << 20

	// maxRetainedBuffers limits the number of free buffers of one class, in addition to the limit
	// in bytes, because the bookkeeping of each buffer takes about 150 B.
	maxRetainedBuffers = 1 << 14
)

// Config configures a [Pool]. The zero value is valid. Each field states its default and unit.
type Config struct {
	// SizeClasses are the capacities of the buffers in bytes: positive, at most 1 TiB (1 GiB
	// if an int has 32 bits), in strictly ascending order. New copies the slice. Default
	// (nil): [DefaultSizeClasses]. New returns an error for an empty slice that is not nil.
	SizeClasses []int

	// MaxRetainedBytes limits the free buffers that the pool retains for each class, in
	// bytes. A buffer whose Put would exceed the limit is left to the garbage collector and
	// counted in [ClassStats.Discarded], so buffers of a class larger than the limit are
	// never retained. Buffers in use do not count. Default (0): 4 MiB, or one buffer of a
	// larger class. New returns an error for a negative value. Independent of the limit, a
	// class retains at most 16384 buffers.
	MaxRetainedBytes int

	// NoZero disables clearing, for callers that write every byte before they read or send
	// it. Default false: Get clears the whole capacity, so that reslicing shows no data of
	// the previous owner.
	NoZero bool

	// Debug detects misuse, see [Pool.Faults] and [Pool.Leaks]. Each Get returns memory that was
	// never returned before; with NoZero it is filled with a pattern. Put fills the buffer with the
	// pattern and keeps it for a while, to detect writes. The call stacks of each Get and Put are
	// recorded. This costs microseconds and allocations per call. It also takes memory in addition
	// to the limit: 4 MiB, or one buffer, for each class. Debug is meant for tests. Default: false.
	Debug bool
}

// limit returns the maximum number of free buffers of a class whose buffers have size bytes.
func (c *Config) limit(size int) int {
	n := c.MaxRetainedBytes / size
	if c.MaxRetainedBytes == 0 {
		n = max(defaultMaxRetainedBytes/size, 1)
	}
	return min(n, maxRetainedBuffers)
}

// check returns an error for invalid fields.
func (c *Config) check() error {
	if c.MaxRetainedBytes < 0 {
		return fmt.Errorf("bufpool: cannot make a pool: MaxRetainedBytes is %d: give a ceiling in bytes per class, or 0 for the default", c.MaxRetainedBytes)
	}
	return checkClasses(c.SizeClasses)
}
