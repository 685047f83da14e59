package program

import "testing"

// A level is called as it was given.
func TestLevelWords(t *testing.T) {
	for in, want := range map[string]string{"trace": "trace", "FATAL": "fatal", "warning": "warn", "info+2": "info+2", "error+4": "fatal"} {
		var l level
		if err := l.Set(in); err != nil || l.String() != want || l.words() != want {
			t.Errorf("%s: %s, %v", in, l.String(), err)
		}
	}
	if (&level{}).words() != "none" {
		t.Error("no level has a name")
	}
}
