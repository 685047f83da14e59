package bufpool

import (
	"bytes"
	"flag"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/forebay-log/forebay/internal/testkit"
)

// An owner is a buffer in use, filled with the byte mark.
type owner struct {
	buf  []byte
	mark byte
}

// checkModel compares a pool, used by one goroutine, with a model that knows the owner of each
// buffer and the value of each counter.
func checkModel(t *rapid.T) {
	const maxSize = 3000
	cfg := Config{
		SizeClasses:      drawClasses(t, maxSize),
		MaxRetainedBytes: rapid.SampledFrom([]int{0, 1, 100, 5000}).Draw(t, "ceiling"),
		NoZero:           rapid.Bool().Draw(t, "noZero"),
		Debug:            rapid.Bool().Draw(t, "debug"),
	}
	p, err := newPool(cfg)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]ClassStats, len(cfg.SizeClasses))
	for i, size := range cfg.SizeClasses {
		want[i].Size = size
	}
	limit := func(i int) int { return cfg.limit(cfg.SizeClasses[i]) }
	var (
		owners  []owner
		freed   [][]byte // buffers of accepted Puts, even if the pool has since reused or dropped them
		refused uint64
		again   uint64 // number of refused second Puts
		over    uint64
		marks   byte
	)
	own := func(t *rapid.T, buf []byte) {
		whole := buf[:cap(buf)]
		start := uintptr(unsafe.Pointer(unsafe.SliceData(whole)))
		for _, o := range owners {
			s := uintptr(unsafe.Pointer(unsafe.SliceData(o.buf)))
			if start < s+uintptr(cap(o.buf)) && s < start+uintptr(cap(whole)) {
				t.Fatal("two owners share memory")
			}
		}
		kept := freed[:0]
		for _, f := range freed {
			if unsafe.SliceData(f) != unsafe.SliceData(whole) {
				kept = append(kept, f)
			}
		}
		freed = kept
		marks = marks%250 + 1
		for i := range whole {
			whole[i] = marks
		}
		owners = append(owners, owner{buf, marks})
	}
	get := func(t *rapid.T, buf []byte, size int) {
		if len(buf) != max(size, 0) {
			t.Fatalf("Get(%d): len %d", size, len(buf))
		}
		i := linear(cfg.SizeClasses, size)
		if i < 0 {
			over++
		} else {
			if cap(buf) != cfg.SizeClasses[i] {
				t.Fatalf("Get(%d): capacity %d, want %d", size, cap(buf), cfg.SizeClasses[i])
			}
			want[i].Gets++
			want[i].InUse++
			if want[i].Retained > 0 {
				want[i].Retained--
			} else {
				want[i].Misses++
			}
		}
		if !cfg.NoZero && !bytes.Equal(buf[:cap(buf)], make([]byte, cap(buf))) {
			t.Fatalf("Get(%d): not zero", size)
		}
	}
	put := func(o owner) {
		i := linear(cfg.SizeClasses, cap(o.buf))
		if i < 0 {
			refused++
			return
		}
		want[i].Puts++
		want[i].InUse--
		freed = append(freed, o.buf[:cap(o.buf)])
		if want[i].Retained < limit(i) {
			want[i].Retained++
		} else {
			want[i].Discarded++
		}
	}
	// An action that is impossible returns without calling t.Skip, because rapid fails if fuzz data
	// selects only skipped actions.
	pick := func(t *rapid.T) (i int, ok bool) {
		if len(owners) == 0 {
			return 0, false
		}
		return rapid.IntRange(0, len(owners)-1).Draw(t, "owner"), true
	}
	disown := func(t *rapid.T, i int) owner {
		o := owners[i]
		owners = append(owners[:i], owners[i+1:]...)
		for _, b := range o.buf[:cap(o.buf)] {
			if b != o.mark {
				t.Fatal("a buffer in use was overwritten")
			}
		}
		return o
	}
	t.Repeat(map[string]func(*rapid.T){
		"Get": func(t *rapid.T) {
			size := rapid.IntRange(-1, maxSize+100).Draw(t, "size")
			buf, class := p.Get(size)
			if class != p.Class(size) || class != 0 && class != cap(buf) {
				t.Fatalf("Get(%d): class %d, Class gives %d, capacity %d", size, class, p.Class(size), cap(buf))
			}
			get(t, buf, size)
			own(t, buf)
		},
		"Put": func(t *rapid.T) {
			i, ok := pick(t)
			if !ok {
				return
			}
			o := disown(t, i)
			p.Put(o.buf[:rapid.IntRange(0, cap(o.buf)).Draw(t, "len")])
			put(o)
		},
		"Grow": func(t *rapid.T) {
			i, ok := pick(t)
			if !ok {
				return
			}
			n := rapid.IntRange(0, maxSize).Draw(t, "n")
			before := owners[i].buf
			if cap(before)-len(before) >= n {
				if after := p.Grow(before, n); unsafe.SliceData(after) != unsafe.SliceData(before) || len(after) != len(before) {
					t.Fatal("grown without need")
				}
				return
			}
			o := disown(t, i)
			after := p.Grow(o.buf, n)
			if len(after) != len(before) || cap(after)-len(after) < n {
				t.Fatalf("Grow(%d of %d, %d): %d of %d", len(before), cap(before), n, len(after), cap(after))
			}
			for _, b := range after {
				if b != o.mark {
					t.Fatal("grown buffer has other content")
				}
			}
			// The content was checked above; get expects an empty buffer.
			clear(after)
			if cfg.NoZero || cap(o.buf) == 0 {
				clear(after[:cap(after)])
			}
			full := len(after)
			size := max(full+n, 2*cap(o.buf))
			if largest := cfg.SizeClasses[len(cfg.SizeClasses)-1]; full+n <= largest {
				size = min(size, largest)
			}
			get(t, after[:size], size)
			if cap(o.buf) > 0 {
				put(o)
			}
			own(t, after)
		},
		"Put part": func(t *rapid.T) {
			i, ok := pick(t)
			if !ok {
				return
			}
			o := owners[i]
			from := rapid.IntRange(0, cap(o.buf)).Draw(t, "from")
			to := rapid.IntRange(from, cap(o.buf)).Draw(t, "to")
			if from == 0 && to == cap(o.buf) {
				return // the whole buffer
			}
			p.Put(o.buf[from:from:to])
			refused++
		},
		"Put foreign": func(t *rapid.T) {
			size := rapid.OneOf(rapid.SampledFrom(cfg.SizeClasses), rapid.IntRange(0, 2*maxSize)).Draw(t, "size")
			p.Put(make([]byte, 0, size))
			refused++
		},
		"Put again": func(t *rapid.T) {
			if len(freed) == 0 {
				return
			}
			p.Put(freed[rapid.IntRange(0, len(freed)-1).Draw(t, "freed")])
			refused++
			again++
		},
		"trim": func(t *rapid.T) {
			before := p.Stats().Classes
			p.trim()
			for i, c := range p.Stats().Classes {
				if c.Retained > before[i].Retained {
					t.Fatal("a trim made buffers")
				}
				want[i].Released += uint64(want[i].Retained - c.Retained)
				want[i].Retained = c.Retained
			}
		},
		"": func(t *rapid.T) {
			s := p.Stats()
			if s.Oversize != over || refusedTotal(s.Refused) != refused {
				t.Fatalf("oversize %d, refused %+v; want %d, %d", s.Oversize, s.Refused, over, refused)
			}
			if cfg.Debug && s.Refused.Twice != again {
				t.Fatalf("%d double Puts, %+v", again, s.Refused)
			}
			for i, c := range s.Classes {
				want[i].RetainedBytes = int64(want[i].Retained * want[i].Size)
				if c != want[i] {
					t.Fatalf("counters %+v, want %+v", c, want[i])
				}
				if c.Retained > limit(i) {
					t.Fatalf("over the ceiling: %+v", c)
				}
			}
		},
	})
	for len(owners) > 0 {
		disown(t, 0)
	}
	for _, f := range p.Faults() {
		if f.Kind == writeAfterPut {
			t.Fatal(f)
		}
	}
}

// checkRandom calls check with random data. The seed and the number of rounds are those of the
// other random tests.
func checkRandom(t *testing.T, check func(*rapid.T)) {
	t.Helper()
	for name, value := range map[string]uint64{"rapid.seed": testkit.Seed(t), "rapid.checks": uint64(testkit.Rounds(t, 100, math.MaxInt))} {
		if err := flag.Set(name, strconv.FormatUint(value, 10)); err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, check)
}

func TestModel(t *testing.T) { checkRandom(t, checkModel) }

func FuzzModel(f *testing.F) {
	// Without random data, a run would end before its first action.
	for seed := range uint64(8) {
		data := make([]byte, 8<<10)
		rand.NewChaCha8([32]byte{byte(seed)}).Read(data)
		f.Add(data)
	}
	f.Fuzz(rapid.MakeFuzz(checkModel))
}
