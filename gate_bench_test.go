package forebay

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// BenchmarkGate compares a gate with a sync.Mutex: uncontended, and guarding writes to a file.
func BenchmarkGate(b *testing.B) {
	f, err := os.OpenFile(filepath.Join(b.TempDir(), "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	line := make([]byte, 256)
	write := func() {
		if _, err := f.Write(line); err != nil {
			b.Error(err)
		}
	}
	n := 0
	count := func() { n++ }
	var mu sync.Mutex
	for _, section := range []struct {
		name string
		f    func()
	}{{"count", count}, {"file", write}} {
		for _, goroutines := range []int{1, 10} {
			for _, lock := range []struct {
				name string
				f    func(g *gate, section func())
			}{
				{"mutex", func(_ *gate, section func()) { mu.Lock(); section(); mu.Unlock() }},
				{"gate", func(g *gate, section func()) {
					if g.enter() == entered {
						section()
						g.unlock()
					}
				}},
			} {
				b.Run(section.name+"/"+lock.name+"/"+map[int]string{1: "1g", 10: "10g"}[goroutines], func(b *testing.B) {
					g := newGate(time.Second)
					b.ReportAllocs()
					if goroutines == 1 {
						for b.Loop() {
							lock.f(g, section.f)
						}
						return
					}
					b.SetParallelism(goroutines / 2)
					b.RunParallel(func(pb *testing.PB) {
						for pb.Next() {
							lock.f(g, section.f)
						}
					})
				})
			}
		}
	}
}
