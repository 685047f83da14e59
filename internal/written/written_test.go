package written

import (
	"io"
	"strings"
	"testing"
)

func TestCount(t *testing.T) {
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
