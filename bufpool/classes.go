package bufpool

import (
	"fmt"
	"math"
	"math/bits"
)

// maxClassBytes is the largest size class accepted by [New], in bytes: 1 TiB, or 1 GiB if an int has
// 32 bits. No machine can allocate more.
const maxClassBytes = 1 << (30 + 10*(^uint(0)>>63))

// DefaultSizeClasses returns a new slice with the default size classes in
// bytes: the 20 powers of two from 2 B to 1 MiB.
func DefaultSizeClasses() []int {
	s := make([]int, 20)
	for i := range s {
		s[i] = 2 << i
	}
	return s
}

// checkClasses returns an error if sizes are invalid.
func checkClasses(sizes []int) error {
	if len(sizes) == 0 {
		return fmt.Errorf("bufpool: cannot make a pool: SizeClasses is empty: name at least one size in bytes, or leave it nil for the default")
	}
	for i, s := range sizes {
		switch {
		case s <= 0:
			return fmt.Errorf("bufpool: cannot make a pool: SizeClasses[%d] is %d: a class is 1 byte or more", i, s)
		case s > maxClassBytes:
			return fmt.Errorf("bufpool: cannot make a pool: SizeClasses[%d] is %d: a class is at most %d; larger requests are plain allocations anyway", i, s, maxClassBytes)
		case i > 0 && s == sizes[i-1]:
			return fmt.Errorf("bufpool: cannot make a pool: SizeClasses[%d] is %d, the same as the one before: name each class once", i, s)
		case i > 0 && s < sizes[i-1]:
			return fmt.Errorf("bufpool: cannot make a pool: SizeClasses[%d] is %d, less than %d before it: sort the classes, smallest first", i, s, sizes[i-1])
		}
	}
	return nil
}

// A sizeTable finds the class of a size. It is immutable.
//
// The array first contains, for each bit length of a size, the index of the class at which the
// search begins. By default, no two classes have the same bit length, and the search begins at most
// one class too low. With other classes, the search visits only classes within a factor of two of
// the size.
type sizeTable struct {
	sizes []int // the classes, and math.MaxInt, which ends every search
	max   int   // the largest class
	first [bits.UintSize + 1]uint32
}

// newSizeTable returns the table for classes, which are in ascending order.
func newSizeTable(classes []int) sizeTable {
	t := sizeTable{sizes: append(append(make([]int, 0, len(classes)+1), classes...), math.MaxInt)}
	t.max = classes[len(classes)-1]
	i := 0
	for n := range t.first {
		for n > 0 && t.sizes[i] < math.MaxInt && uint(t.sizes[i]) < 1<<(n-1) {
			i++
		}
		t.first[n] = uint32(i)
	}
	return t
}

// index returns the index of the smallest class of at least size bytes. size is between 0 and max.
func (t *sizeTable) index(size int) int {
	i := int(t.first[bits.Len(uint(size))])
	for t.sizes[i] < size {
		i++
	}
	return i
}
