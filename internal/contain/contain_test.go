package contain

import (
	"runtime"
	"strings"
	"testing"
)

func TestCallReturnsPanicAsError(t *testing.T) {
	ran := false
	for name, c := range map[string]struct {
		f    func()
		want string
	}{
		"return": {func() { ran = true }, ""},
		"panic":  {func() { panic("boo") }, "it panicked: boo\n"},
		"nil":    {func() { panic(nil) }, "it panicked: "},
		"Goexit": {func() { runtime.Goexit() }, "it called runtime.Goexit"},
	} {
		err := Call(c.f)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !ran {
		t.Error("not called")
	}
}
