package bufpool

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// linear finds the class of a size by a linear search, as a reference for the table.
func linear(classes []int, size int) int {
	for i, c := range classes {
		if c >= size {
			return i
		}
	}
	return -1
}

func drawClasses(t *rapid.T, maxSize int) []int {
	classes := rapid.SliceOfNDistinct(rapid.IntRange(1, maxSize), 1, 40, rapid.ID[int]).Draw(t, "classes")
	slices.Sort(classes)
	return classes
}

func TestIndexAgreesWithLinearSearch(t *testing.T) {
	check := func(t interface{ Fatalf(string, ...any) }, classes []int, size int) {
		tab := newSizeTable(classes)
		if got, want := tab.index(size), linear(classes, size); got != want {
			t.Fatalf("index(%d) in %v is %d, want %d", size, classes, got, want)
		}
	}
	t.Run("every size", func(t *testing.T) {
		for _, classes := range [][]int{
			DefaultSizeClasses()[:12], {1}, {1, 2, 3, 4, 5}, {100, 101, 102, 127, 128, 129, 4000}, {4096},
		} {
			for size := 0; size <= classes[len(classes)-1]; size++ {
				check(t, classes, size)
			}
		}
	})
	checkRandom(t, func(t *rapid.T) {
		classes := drawClasses(t, maxClassBytes)
		check(t, classes, rapid.IntRange(0, classes[len(classes)-1]).Draw(t, "size"))
		i := rapid.IntRange(0, len(classes)-1).Draw(t, "i")
		check(t, classes, classes[i])
		check(t, classes, classes[i]-1)
		if i < len(classes)-1 {
			check(t, classes, classes[i]+1)
		}
	})
}

func TestClassIsCapacityOfGet(t *testing.T) {
	p := mustPool(t, Config{SizeClasses: []int{10, 1000}})
	for size, want := range map[int]int{-5: 10, 0: 10, 1: 10, 10: 10, 11: 1000, 1000: 1000, 1001: 0} {
		if got := p.Class(size); got != want {
			t.Errorf("Class(%d) = %d, want %d", size, got, want)
		}
		if buf, class := p.Get(size); class != want || want != 0 && cap(buf) != want {
			t.Errorf("Get(%d) gives class %d, capacity %d, want %d", size, class, cap(buf), want)
		}
	}
}
