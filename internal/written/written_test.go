package written

import (
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestCountCorrectsInvalidCounts(t *testing.T) {
	for _, tt := range []struct {
		n       int64
		err     error
		done    int
		lie     bool
		failure string
	}{
		{0, nil, 0, false, ""},
		{5, nil, 5, false, ""},
		{3, io.EOF, 3, false, "EOF"},
		{6, nil, 5, true, ""},
		{1 << 40, io.EOF, 5, true, "EOF"},
		{-1, nil, 0, false, "invalid count -1 for a write of 5 bytes"},
		{-1, io.EOF, 0, false, "EOF"},
	} {
		done, lie, failure := Count(tt.n, 5, tt.err)
		if done != tt.done || (lie != nil) != tt.lie || (failure != nil) != (tt.failure != "") ||
			failure != nil && !strings.Contains(failure.Error(), tt.failure) {
			t.Errorf("%d, %v: %d, %v, %v", tt.n, tt.err, done, lie, failure)
		}
	}
}

// steps is a writer that returns the next of its counts for each Write. It repeats the last count,
// with err.
type steps struct {
	counts []int
	err    error
	calls  int
}

func (s *steps) Write([]byte) (int, error) {
	n := s.counts[min(s.calls, len(s.counts)-1)]
	if s.calls++; s.calls < len(s.counts) {
		return n, nil
	}
	return n, s.err
}

func TestAllWritesEverything(t *testing.T) {
	for _, tt := range []struct {
		w     steps
		done  int
		lie   bool
		err   error
		calls int
	}{
		{steps{counts: []int{5}}, 5, false, nil, 1},
		{steps{counts: []int{2, 0, 0, 1, 2}}, 5, false, nil, 5},
		{steps{counts: []int{2, 1}, err: io.EOF}, 3, false, io.EOF, 2},
		{steps{counts: []int{2, 3}, err: io.EOF}, 5, false, io.EOF, 2},
		{steps{counts: []int{2, 9}}, 5, true, nil, 2},
		{steps{counts: []int{0}}, 0, false, io.ErrNoProgress, MaxIdle},
		{steps{counts: []int{0, 0, 0, 0, 0, 0, 0, 1, 0}}, 1, false, io.ErrNoProgress, 8 + MaxIdle},
	} {
		var done int
		var lie error
		err := All(&tt.w, []byte("12345"), &done, func(l error) { lie = l })
		if done != tt.done || (lie != nil) != tt.lie || err != tt.err || tt.w.calls != tt.calls {
			t.Errorf("%+v: %d, %v, %v after %d calls", tt, done, lie, err, tt.w.calls)
		}
	}
}

func TestCannotSyncRecognizesErrors(t *testing.T) {
	for _, err := range []error{syscall.EINVAL, syscall.ENOTSUP, syscall.ENOTTY} {
		if !CannotSync(&os.PathError{Err: err}) {
			t.Errorf("%v", err)
		}
	}
	if CannotSync(nil) || CannotSync(syscall.EIO) {
		t.Error("EIO, or none")
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// If a Write panics, All has counted the bytes that earlier Writes accepted.
func TestAllCountsAtOnce(t *testing.T) {
	done := 0
	defer func() {
		if r := recover(); r == nil || done != 2 {
			t.Errorf("%d bytes counted, recovered %v", done, r)
		}
	}()
	_ = All(writerFunc(func(p []byte) (int, error) {
		if len(p) < 5 {
			panic("on purpose")
		}
		return 2, nil
	}), []byte("12345"), &done, nil)
}
