// Package control lets other programs of the same user look at one that runs, over a unix
// socket: [Listen] and [Serve] are for the one that runs, [Find] and [Get] for those that
// look. What passes is HTTP, so that curl --unix-socket can look, too.
package control

import (
	"encoding/json"
	"errors"
	"strings"
	"time"
	"unicode"
)

// A State is the state of a running program. Unless stated otherwise, numbers count records since
// the start of the program. The names of its JSON fields are stable.
type State struct {
	Name    string    `json:"name"`
	Verb    string    `json:"verb"` // the command: pipe, tail
	PID     int       `json:"pid"`
	Version string    `json:"version"`
	Start   time.Time `json:"start"`
	Now     time.Time `json:"now"`              // when this was the state
	Ending  bool      `json:"ending,omitempty"` // reading has ended; the remaining records are being delivered
	Input   Input     `json:"input"`
	Outputs []Output  `json:"outputs"`
}

// Input describes the records read.
type Input struct {
	Records  uint64 `json:"records"`
	Bytes    uint64 `json:"bytes"`
	Filtered uint64 `json:"filtered"` // below the level of all outputs
	Oversize uint64 `json:"oversize"`
	Unparsed uint64 `json:"unparsed"`
}

// Output is the state of a destination.
type Output struct {
	To        string            `json:"to"`
	Accepted  uint64            `json:"accepted"`
	Recovered uint64            `json:"recovered"`
	Delivered uint64            `json:"delivered"`
	Handled   uint64            `json:"handled"`
	Dropped   map[string]uint64 `json:"dropped"` // by reason; without those that are 0
	Pending   Pending           `json:"pending"`
	Below     uint64            `json:"below_level,omitempty"`
	Bytes     uint64            `json:"delivered_bytes"`

	Slabs  Slabs  `json:"slabs"`
	Waits  Waits  `json:"waits"`
	Oldest Oldest `json:"oldest"`
	Spool  *Spool `json:"spool,omitempty"`

	Circuit      string    `json:"circuit"` // closed, open, half-open
	Trips        uint64    `json:"circuit_trips"`
	Attempts     uint64    `json:"attempts"` // batches given to the destination
	Retries      uint64    `json:"retries"`
	FailingSince time.Time `json:"failing_since,omitzero"`
	LastError    string    `json:"last_error,omitempty"` // while it fails
	Gone         bool      `json:"gone,omitempty"`       // it has ended permanently
}

// Pending is where records are that are neither delivered nor dropped.
type Pending struct {
	Slab     uint64 `json:"slab"`
	Spill    uint64 `json:"spill"`
	Inflight uint64 `json:"inflight"`
}

// Slabs is the memory of an output.
type Slabs struct {
	InUse int `json:"in_use"`
	Count int `json:"count"`
	Bytes int `json:"slab_bytes"` // of one
}

// Waits is how long callers have waited for room in memory.
type Waits struct {
	Now     int     `json:"now"`     // callers that wait
	Count   uint64  `json:"count"`   // waits that are over
	Seconds float64 `json:"seconds"` // how long they were, all together
}

// Oldest is the age of the oldest record that is not delivered; 0 if there is none.
type Oldest struct {
	Wait float64 `json:"wait_seconds"` // since it was accepted, or put into the spool
	Age  float64 `json:"age_seconds"`  // by the time in it
}

// Spool is what an output has on disk.
type Spool struct {
	Records  uint64 `json:"records"`
	Bytes    int64  `json:"bytes"`
	MaxBytes int64  `json:"max_bytes"`
	Parked   uint64 `json:"parked,omitempty"`
}

// decode reads the state that a program has sent. It may be any program: texts come out
// without characters that a terminal would act on.
func decode(b []byte) (*State, error) {
	s := new(State)
	if err := json.Unmarshal(b, s); err != nil {
		return nil, errors.New("not the control socket of a forebay")
	}
	if s.PID <= 0 || s.Now.IsZero() {
		return nil, errors.New("not the control socket of a forebay: it has no name")
	}
	for _, text := range []*string{&s.Name, &s.Verb, &s.Version} {
		*text = plain(*text)
	}
	for i := range s.Outputs {
		o := &s.Outputs[i]
		o.To, o.Circuit, o.LastError = plain(o.To), plain(o.Circuit), plain(o.LastError)
		dropped := make(map[string]uint64, len(o.Dropped))
		for why, n := range o.Dropped {
			dropped[plain(why)] += n
		}
		o.Dropped = dropped
	}
	return s, nil
}

// plain replaces what a terminal would not print.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}
