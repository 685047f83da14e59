package bufpool

import "fmt"

const (
	// defaultMaxRetainedBytes is the default ceiling of one class.
	defaultMaxRetainedBytes = 4 << 20

	// maxRetainedBuffers bounds the free buffers of one class whatever the
	// ceiling in bytes, because each also costs some 150 B of bookkeeping.
	maxRetainedBuffers = 1 << 14
)

// Config configures a [Pool]. The zero value is useful: each field states its
// default and unit.
type Config struct {
	// SizeClasses are the capacities of the buffers in bytes: positive, at most
	// 1 TiB (1 GiB where an int has 32 bits), ascending, each once. New copies it.
	// Default (nil): [DefaultSizeClasses]. An empty slice that is not nil is an error.
	SizeClasses []int

	// MaxRetainedBytes is the ceiling of each class: the bytes of free buffers
	// the pool keeps for it. A buffer whose Put would go past it is left to the
	// garbage collector and counted in [ClassStats.Discarded], so a class larger
	// than the ceiling is never kept. Buffers in use do not count. Default (0):
	// 4 MiB, or one buffer for a larger class. Negative: an error. Whatever the
	// ceiling, a class keeps at most 16384 buffers.
	MaxRetainedBytes int

	// NoZero hands buffers out as the last owner left them, for callers that
	// write every byte before they read or send it. Default: Get clears the
	// whole class, so that reslicing up to the capacity shows nothing of the
	// last owner.
	NoZero bool

	// Debug finds misuse: see [Pool.Faults] and [Pool.Leaks]. Each Get gives
	// memory that was never handed out before, with NoZero filled with a pattern;
	// what is Put is filled with the pattern and kept for a while, to see whether
	// it changes; the call stack of each Get and Put is recorded. That costs
	// microseconds and allocations per call, and memory beyond the ceiling: in
	// each class 4 MiB, or one buffer. It is meant for tests. Default false.
	Debug bool
}

// limit is the number of free buffers a class keeps.
func (c *Config) limit(size int) int {
	n := c.MaxRetainedBytes / size
	if c.MaxRetainedBytes == 0 {
		n = max(defaultMaxRetainedBytes/size, 1)
	}
	return min(n, maxRetainedBuffers)
}

func (c *Config) check() error {
	if c.MaxRetainedBytes < 0 {
		return fmt.Errorf("bufpool: cannot make a pool: MaxRetainedBytes is %d: give a ceiling in bytes per class, or 0 for the default", c.MaxRetainedBytes)
	}
	return checkClasses(c.SizeClasses)
}
