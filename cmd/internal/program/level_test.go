package program

import (
	"testing"

	"github.com/forebay-log/forebay/cmd/internal/setting"
)

// A level is printed with the name that the user has given, in lower case.
func TestLevelKeepsItsName(t *testing.T) {
	for in, want := range map[string]string{"trace": "trace", "FATAL": "fatal", "warning": "warn", "info+2": "info+2", "error+4": "fatal"} {
		var l setting.Level
		if err := l.Set(in); err != nil || l.String() != want || l.Words() != want {
			t.Errorf("%s: %s, %v", in, l.String(), err)
		}
	}
	if (&setting.Level{}).Words() != "none" {
		t.Error("no level has a name")
	}
}
