package slab

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/testkit"
)

// A writer that says it has written more than it was given has written all of it,
// as far as anybody can know, and is told of once; one that says fewer than
// nothing has failed. Neither holds up what comes after.
func TestInvalidCountFromDestination(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer func(call, size int) (int, error)
		told   string
		errors uint64
		calls  int
	}{
		{"too many, always", func(_, size int) (int, error) { return size + 7, nil }, "invalid count 12 for a write of 5", 0, 3},
		{"too many, and an error", func(call, size int) (int, error) {
			if call == 0 {
				return size + 7, testkit.ErrDisk
			}
			return size, nil
		}, "invalid count 12 for a write of 5", 1, 3},
		{"negative, once", func(call, size int) (int, error) {
			if call == 0 {
				return -1, nil
			}
			return size, nil
		}, "invalid count -1 for a write of 5", 1, 4},
		{"negative, and an error", func(call, size int) (int, error) {
			if call == 0 {
				return -1, testkit.ErrDisk
			}
			return size, nil
		}, testkit.ErrDisk.Error(), 1, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				events := &testkit.Events{}
				var text []string
				w := mustNew(t, writerFunc(func(p []byte) (int, error) {
					n, err := tt.answer(calls, len(p))
					calls++
					return n, err
				}), &Options{OnError: func(e batch.Event) {
					events.Add(e)
					if e.Err != nil {
						text = append(text, e.Err.Error())
					}
				}})
				for range 3 {
					if _, err := w.Write([]byte("line\n")); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Minute)
				}
				closeNow(t, w)
				checkAccount(t, w, 3, 3, batch.Drops{})
				if n := w.Stats().SendErrors; n != tt.errors || calls != tt.calls {
					t.Errorf("%d errors, %d calls", n, calls)
				}
				synctest.Wait()
				if n := strings.Count(strings.Join(text, "\n"), tt.told); n != 1 {
					t.Errorf("told %d times of %q: %q", n, tt.told, text)
				}
			})
		})
	}
}

// vecFunc is a vecWriter.
type vecFunc func(bufs [][]byte) (int64, error)

func (f vecFunc) Writev(bufs [][]byte) (int64, error) { return f(bufs) }
func (f vecFunc) Write(p []byte) (int, error) {
	n, err := f([][]byte{p})
	return int(n), err
}

// A vecWriter is believed as little.
func TestInvalidCountFromVecWriter(t *testing.T) {
	var b batch.Batch
	for range 3 {
		var build batch.Builder
		build.Append([]byte("line\n"), 0, batch.Meta{})
		b.Add(build.Batch(nil).Runs[0])
	}
	for _, tt := range []struct {
		n    int64
		err  error
		want error // nil: all is settled
	}{
		{99, nil, nil},
		{-1, testkit.ErrDisk, testkit.ErrDisk},
	} {
		lies := 0
		v := vecFunc(func([][]byte) (int64, error) { return tt.n, tt.err })
		s := &ioSink{w: v, vec: v, report: func(error) { lies++ }}
		for range 2 {
			if err := s.Send(t.Context(), &b); !errors.Is(err, tt.want) {
				t.Errorf("%d, %v: got %v", tt.n, tt.err, err)
			}
		}
		if want := min(1, max(0, int(tt.n))); lies != want {
			t.Errorf("%d, %v: told %d times", tt.n, tt.err, lies)
		}
	}
	v := vecFunc(func([][]byte) (int64, error) { return -1, nil })
	s := &ioSink{w: v, vec: v}
	if err := s.Send(t.Context(), &b); !batch.Retryable(err) || !strings.Contains(err.Error(), "invalid count -1") {
		t.Errorf("got %v", err)
	}
}

// A destination that takes a part and then panics, or ends its goroutine, gets the rest
// next: no line is torn, none comes twice.
func TestPanicAfterPartOfABatch(t *testing.T) {
	for name, leave := range map[string]func(){"panic": func() { panic("on purpose") }, "goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(5, 6))
				m := &memory{act: func(_ int, p []byte) (int, error) {
					switch rng.IntN(4) {
					case 0:
						leave()
					case 1:
						return rng.IntN(len(p) + 1), errDown
					case 2:
						return rng.IntN(len(p) + 1), nil
					}
					return -1, nil
				}}
				w := mustNew(t, m, &Options{SlabBytes: 512, WhenFull: Block(), RetryMax: time.Second, OnError: quiet})
				allArrive(t, w, m)
				closeNow(t, w)
			})
		})
	}
}

// A marker that is written in part is ended, and not written once more.
func TestTornMarkerIsEnded(t *testing.T) {
	for _, leave := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate()
			var text strings.Builder
			left := 20 // calls that fail
			w := mustNew(t, writerFunc(func(p []byte) (int, error) {
				if text.Len() == 0 {
					<-g.opened
				}
				if m := strings.Contains("dropped full=", string(p[:1])); m && left > 0 {
					if left--; leave && left%2 == 0 {
						panic("on purpose")
					}
					text.Write(p[:1])
					if leave {
						return 1, nil
					}
					return 1, errDown
				}
				text.Write(p)
				return len(p), nil
			}), &Options{SlabBytes: 512, SlabCount: 2, WhenFull: DropNewest(), Codec: lines{}, RetryMin: time.Microsecond, RetryMax: time.Millisecond, OnError: quiet})
			mustWrite(t, w, 0, 50)
			time.Sleep(time.Second)
			lost := 0
			for i := 1; i < 100; i++ {
				if w.WriteRecord(line(i, 50), batch.Meta{}) != nil {
					lost++
				}
			}
			g.open()
			w.Flush(t.Context())
			mustWrite(t, w, 100, 50)
			time.Sleep(2 * time.Second)
			mustWrite(t, w, 101, 50)
			closeNow(t, w)
			want := fmt.Sprintf("dropped full=%d\n", lost)
			if got := strings.Count(text.String(), "dropped"); got != 1 || !strings.Contains(text.String(), "\n"+want) {
				t.Errorf("%d markers, want one %q in %q", got, want, text.String())
			}
			numbers(t, strings.Replace(text.String(), want, "", 1))
			checkAccount(t, w, 102, uint64(102-lost), drops(batch.Full, uint64(lost)))
		})
	}
}
