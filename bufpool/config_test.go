package bufpool

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/forebay-log/forebay/internal/testkit/race"
)

func TestNewRefusesMisuse(t *testing.T) {
	for _, tt := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"no classes", Config{SizeClasses: []int{}}, "SizeClasses is empty"},
		{"zero class", Config{SizeClasses: []int{0, 8}}, "SizeClasses[0] is 0"},
		{"negative class", Config{SizeClasses: []int{-1, 8}}, "SizeClasses[0] is -1"},
		{"negative class behind", Config{SizeClasses: []int{8, -1}}, "SizeClasses[1] is -1: a class is 1 byte or more"},
		{"unsorted", Config{SizeClasses: []int{8, 16, 12}}, "SizeClasses[2] is 12, less than 16"},
		{"duplicate", Config{SizeClasses: []int{8, 8}}, "SizeClasses[1] is 8, the same"},
		{"too large", Config{SizeClasses: []int{8, math.MaxInt}}, fmt.Sprintf("SizeClasses[1] is %d: a class is at most %d;", math.MaxInt, maxClassBytes)},
		{"just too large", Config{SizeClasses: []int{maxClassBytes + 1}}, "SizeClasses[0] is"},
		{"negative ceiling", Config{MaxRetainedBytes: -1}, "MaxRetainedBytes is -1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := New(tt.cfg)
			if err == nil || p != nil {
				t.Fatalf("New = %v, %v; want nil and an error", p, err)
			}
			if !strings.HasPrefix(err.Error(), "bufpool: cannot make a pool: ") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q does not say %q", err, tt.want)
			}
		})
	}
}

func TestDefaultClasses(t *testing.T) {
	p, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	classes := p.Stats().Classes
	if len(classes) != 20 || classes[0].Size != 2 || classes[19].Size != 1<<20 {
		t.Fatalf("default classes: %+v", classes)
	}
}

// New copies SizeClasses: a later change of the slice has no effect.
func TestNewCopiesClasses(t *testing.T) {
	sizes := []int{10, 20}
	p := mustPool(t, Config{SizeClasses: sizes})
	sizes[0], sizes[1] = 1, 2
	if _, class := p.Get(15); class != 20 {
		t.Errorf("class of 15 is %d, want 20", class)
	}
}

func TestConfigLimit(t *testing.T) {
	for _, tt := range []struct{ ceiling, size, want int }{
		{0, 1 << 20, 4},
		{0, 64 << 20, 1},
		{0, 2, maxRetainedBuffers},
		{1 << 20, 1 << 20, 1},
		{1<<20 - 1, 1 << 20, 0},
		{100, 30, 3},
	} {
		c := Config{MaxRetainedBytes: tt.ceiling}
		if got := c.limit(tt.size); got != tt.want {
			t.Errorf("limit of class %d under a ceiling of %d: %d, want %d", tt.size, tt.ceiling, got, tt.want)
		}
	}
}

// The limits of the lists of a class add up to the limit of the class.
func TestListLimitsAddUp(t *testing.T) {
	for limit := range 300 {
		sum := 0
		c := newClass(64, limit, 64)
		for i := range c.lists {
			sum += int(c.lists[i].limit)
		}
		if sum != limit {
			t.Fatalf("limits add up to %d, want %d", sum, limit)
		}
	}
}

// The largest class is accepted, and a class above 1 GiB works like any other.
func TestHugeClasses(t *testing.T) {
	mustPool(t, Config{SizeClasses: []int{1, maxClassBytes}})
	race.Skip(t) // the race detector needs memory for the address space
	if math.MaxInt == math.MaxInt32 {
		t.Skip("takes address space")
	}
	shift := 31 // a variable, because the constant does not compile if an int has 32 bits
	class := 1<<shift + 4096
	p := mustPool(t, Config{SizeClasses: []int{64, class}, NoZero: true}) // takes no memory, because its pages are not written
	buf, got := p.Get(1<<30 + 1)
	if len(buf) != 1<<30+1 || cap(buf) != class || got != class {
		t.Fatalf("len %d, cap %d, class %d", len(buf), cap(buf), got)
	}
	p.Put(buf)
	if c := classStats(t, p, class); c.Retained != 1 || c.RetainedBytes != int64(class) {
		t.Errorf("%+v", c)
	}
	if again, _ := p.Get(65); &again[0] != &buf[0] {
		t.Error("not reused")
	}
}
