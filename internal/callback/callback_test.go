package callback

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/forebay-log/forebay/internal/bubble"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOrderAndWait(t *testing.T) {
	var got []int // written only by the Runner's goroutine; read after Wait
	r := New(func(v int) { got = append(got, v) }, 100)
	var want []int
	for i := range 100 {
		r.Post(i)
		want = append(want, i)
	}
	if err := r.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) || r.Dropped() != 0 || r.Failed() != 0 {
		t.Errorf("got %v, dropped %d, failed %d", got, r.Dropped(), r.Failed())
	}
	if err := r.Wait(t.Context()); err != nil {
		t.Errorf("Wait on an idle Runner: %v", err)
	}
}

// Post does not block while the callback is blocked. If the queue is full, the oldest values are
// dropped.
func TestFullDropsOldest(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var got []int
		r := New(func(v int) { <-release; got = append(got, v) }, 3)
		r.Post(0)
		synctest.Wait() // fn is processing value 0
		for i := 1; i <= 10; i++ {
			r.Post(i)
		}
		if n := r.Dropped(); n != 7 {
			t.Errorf("dropped %d, want 7", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait beside a stuck callback: %v", err)
		}
		if len(r.waiters) != 0 {
			t.Error("the waiter of a Wait whose context ended was not removed")
		}
		close(release)
		if err := r.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if want := []int{0, 8, 9, 10}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

func TestPanicAndGoexit(t *testing.T) {
	var got []int
	r := New(func(v int) {
		got = append(got, v)
		switch v % 3 {
		case 0:
			panic(v)
		case 1:
			runtime.Goexit()
		}
	}, 9)
	for i := range 9 {
		r.Post(i)
	}
	if err := r.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(got) != 9 || r.Failed() != 6 {
		t.Errorf("ran %v, failed %d, want 9 and 6", got, r.Failed())
	}
}

// A callback may call Post, for example by logging to the component that calls it.
func TestPostFromCallbackUnderLock(t *testing.T) {
	var mu sync.Mutex
	var r *Runner[int]
	sum := 0
	r = New(func(v int) {
		mu.Lock()
		defer mu.Unlock()
		sum += v
		if v > 0 {
			r.Post(v - 1)
		}
	}, 4)
	mu.Lock()
	r.Post(10)
	mu.Unlock()
	for range 11 { // each Wait lets at least one more value be handled
		if err := r.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if sum != 55 {
		t.Errorf("sum %d, want 55", sum)
	}
}

func TestQueuedValuesRunAfterClose(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		n := 0
		r := New(func(int) { <-release; n++ }, 0)
		r.Post(1)
		r.Post(2)
		r.Close()
		r.Close()
		r.Post(3)
		if r.Dropped() != 1 {
			t.Errorf("dropped %d, want the one after Close", r.Dropped())
		}
		close(release)
		if err := r.Wait(t.Context()); err != nil || n != 2 {
			t.Errorf("ran %d, err %v, want 2", n, err)
		}
	})
}

func TestNilRunnerDoesNothing(t *testing.T) {
	r := New[int](nil, 1)
	r.Post(1)
	r.Close()
	if r.Wait(t.Context()) != nil || r.Dropped() != 0 || r.Failed() != 0 {
		t.Error("a nil Runner does something")
	}
}

func TestMethodsAreSafeForConcurrentUse(t *testing.T) {
	var n uint64
	r := New(func(int) { n++ }, 8)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 1000 {
				r.Post(i)
			}
			if err := r.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := r.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n+r.Dropped() != 8000 {
		t.Errorf("%d ran and %d dropped of 8000", n, r.Dropped())
	}
}

// WaitBriefly waits at most Grace for a blocked callback.
func TestWaitBriefly(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		handled := false
		r := New(func(d time.Duration) { time.Sleep(d); handled = true }, 0)
		r.Post(Grace / 2)
		began := time.Now()
		if r.WaitBriefly(t.Context()); !handled || time.Since(began) != Grace/2 {
			t.Errorf("handled %v after %v", handled, time.Since(began))
		}
		r.Post(10 * Grace)
		began = time.Now()
		if r.WaitBriefly(t.Context()); time.Since(began) != Grace {
			t.Errorf("waited %v", time.Since(began))
		}
		_ = r.Wait(t.Context())
		var none *Runner[int]
		none.WaitBriefly(t.Context())
	})
}

// ToStderr prints events to standard error, one line each.
func TestToStderr(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	old := os.Stderr
	os.Stderr = write
	ToStderr(errors.New("disk full"))
	os.Stderr = old
	write.Close()
	if got, err := io.ReadAll(read); err != nil || string(got) != "forebay: disk full\n" {
		t.Errorf("%q, %v", got, err)
	}
}
