package msgpack

import (
	"bytes"
	"strings"
	"testing"
)

// AppendShallow turns deeper arrays and maps into text, and Nested returns the depth of a value.
func TestShallow(t *testing.T) {
	deep := func(n int) []byte { return append(bytes.Repeat([]byte{0x91}, n), 1) }
	for _, tt := range []struct {
		in     []byte
		levels int
		want   string
	}{
		{deep(0), 0, `1`},
		{deep(3), 3, `[[[1]]]`},
		{deep(3), 2, `[["[1]"]]`},
		{deep(3), 0, `"[[[1]]]"`},
		{[]byte{0x82, 0xa1, 'a', 0x91, 1, 0xa1, 'b', 2}, 1, `{"a":"[1]","b":2}`},
		{deep(MaxDepth + 5), 1, `["!ERROR: msgpack: nested too deeply"]`},
	} {
		tail := append(bytes.Clone(tt.in), 0xc0)
		out, rest, err := AppendShallow(nil, tail, tt.levels)
		if err != nil || len(rest) != 1 {
			t.Errorf("%x: %v, %d bytes of rest", tt.in, err, len(rest))
			continue
		}
		js, _, err := AppendJSON(nil, out)
		if string(js) != tt.want || err != nil || Nested(out, 99) > tt.levels {
			t.Errorf("%s: %v", js, err)
		}
	}
	for _, bad := range []string{"", "\x92\x01", "\x81\xa1a", "\xc1"} {
		for levels := range 2 {
			if _, _, err := AppendShallow(nil, []byte(bad), levels); err == nil {
				t.Errorf("%q: no error", bad)
			}
		}
	}
	for n := range 40 {
		if got := Nested(deep(n), 32); got != min(n, 32) {
			t.Errorf("depth of %d levels: %d", n, got)
		}
	}
	if n := Nested([]byte(strings.Repeat("\x91", 1000)), 50); n != 50 {
		t.Error(n)
	}
}
