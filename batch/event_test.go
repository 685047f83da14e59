package batch

import (
	"errors"
	"testing"
)

func TestEventString(t *testing.T) {
	for want, e := range map[string]Event{
		"disk: recovered":                  {Output: "disk", Op: "recovered"},
		"disk: write: no space":            {Output: "disk", Op: "write", Err: errors.New("no space"), Count: 1},
		"loki: send: timeout (12 records)": {Output: "loki", Op: "send", Err: errors.New("timeout"), Count: 12},
	} {
		if got := e.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
