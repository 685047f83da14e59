package batch

import (
	"errors"
	"testing"
)

func TestEventString(t *testing.T) {
	for want, e := range map[string]Event{
		"disk: recovered":                               {Output: "disk", Op: "recovered"},
		"disk: write: no space":                         {Output: "disk", Op: "write", Err: errors.New("no space"), Count: 1},
		"loki: send: timeout (12 records)":              {Output: "loki", Op: "send", Err: errors.New("timeout"), Count: 12},
		"loki: drop: no space: full=1":                  {Output: "loki", Op: "drop", Err: errors.New("no space"), Count: 1, Dropped: Drops{Full: 1}},
		"loki: drop-end: full=2":                        {Output: "loki", Op: "drop-end", Count: 2, Dropped: Drops{Full: 2}},
		"loki: drop-end: full=2 oversize=1 (3 records)": {Output: "loki", Op: "drop-end", Count: 3, Dropped: Drops{Full: 2, Oversize: 1}},
	} {
		if got := e.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
