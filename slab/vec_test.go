package slab

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/forebay-log/forebay/batch"
)

func TestFileTakesSeveralSlabsAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, err := New(f, &Options{SlabBytes: 512, SlabCount: 16, WhenFull: Block()})
	if err != nil {
		t.Fatal(err)
	}
	const n = 20000
	for i := range n {
		mustWrite(t, w, i, i%90)
	}
	closeNow(t, w)
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	wantSequence(t, numbers(t, string(got)), 0, n)
	checkAccount(t, w, n, n, batch.Drops{})
}

// heldVec waits in its first call and notes how many slabs each gets.
type heldVec struct {
	held chan struct{}
	got  []int
}

func (h *heldVec) Write(p []byte) (int, error) {
	n, err := h.Writev([][]byte{p})
	return int(n), err
}

func (h *heldVec) Writev(bufs [][]byte) (n int64, err error) {
	<-h.held
	h.got = append(h.got, len(bufs))
	for _, b := range bufs {
		n += int64(len(b))
	}
	return n, nil
}

// While callers wait, half of the slabs go at once; also right after they were
// served, when none waits at that moment.
func TestQueuedSlabsGoTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &heldVec{held: make(chan struct{})}
		w := mustSink(t, &ioSink{w: h, vec: h}, &Options{SlabBytes: 512, SlabCount: 16, WhenFull: Block()})
		const n = 200 // 132 bytes with the slot each: three per slab
		go func() {
			for i := range n {
				mustWrite(t, w, i, 92)
			}
		}()
		synctest.Wait() // all slabs are full and the caller waits
		close(h.held)
		synctest.Wait()
		closeNow(t, w)
		checkAccount(t, w, n, n, batch.Drops{})
		if len(h.got) < 2 || h.got[1] != 8 {
			t.Errorf("slabs per call: %v, want 8 in the second", h.got)
		}
	})
}

// vecMemory takes several slabs at once and fails in the middle.
type vecMemory struct {
	memory
	rng   *rand.Rand
	calls int
}

func (v *vecMemory) Writev(bufs [][]byte) (n int64, err error) {
	v.calls++
	for _, p := range bufs {
		k := len(p)
		switch v.rng.IntN(20) {
		case 0:
			k, err = v.rng.IntN(k+1), errDown
		case 1:
			k, err = v.rng.IntN(k+1), nil
			v.buf.Write(p[:k])
			return n + int64(k), nil // short, without an error
		}
		v.buf.Write(p[:k])
		n += int64(k)
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func TestVecWriterThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vecMemory{rng: rand.New(rand.NewPCG(7, 8))}
		w, err := New(v, &Options{SlabBytes: 512, SlabCount: 16, WhenFull: Block(), OnError: quiet})
		if err != nil {
			t.Fatal(err)
		}
		const n = 5000
		for i := range n {
			mustWrite(t, w, i, i%90)
		}
		if err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		closeNow(t, w)
		wantSequence(t, numbers(t, v.buf.String()), 0, n)
		checkAccount(t, w, n, n, batch.Drops{})
		if v.calls == 0 {
			t.Error("Writev was never called")
		}
	})
}
