// Package control connects a running program with forebay top over a Unix socket. The running
// program calls [Listen] and [Serve]. Other programs of the same user call [Find] and [Get]. The
// protocol is HTTP, so that curl --unix-socket can also be used.
package control

import (
	"encoding/json"
	"errors"
	"strings"
	"time"
	"unicode"
)

// A State is the state of a running program. Numbers count records since the start of the program,
// unless a comment states otherwise. The JSON names are a stable interface.
type State struct {
	Name    string    `json:"name"`
	Verb    string    `json:"verb"` // the command, such as pipe or tail
	PID     int       `json:"pid"`
	Version string    `json:"version"`
	Start   time.Time `json:"start"`
	Now     time.Time `json:"now"`              // time of the State
	Ending  bool      `json:"ending,omitempty"` // reading has ended; the remaining records are being delivered
	Input   Input     `json:"input"`
	Outputs []Output  `json:"outputs"`
}

// Input counts the records that the program has read.
type Input struct {
	Records  uint64 `json:"records"`
	Bytes    uint64 `json:"bytes"`
	Filtered uint64 `json:"filtered"` // below the levels of all outputs
	Oversize uint64 `json:"oversize"`
	Unparsed uint64 `json:"unparsed"`
}

// Output is the state of an output.
type Output struct {
	To        string            `json:"to"`
	Accepted  uint64            `json:"accepted"`
	Recovered uint64            `json:"recovered"`
	Delivered uint64            `json:"delivered"`
	Handled   uint64            `json:"handled"`
	Dropped   map[string]uint64 `json:"dropped"` // number by reason; a reason without records is omitted
	Pending   Pending           `json:"pending"`
	Below     uint64            `json:"below_level,omitempty"`
	Bytes     uint64            `json:"delivered_bytes"`

	Slabs  Slabs  `json:"slabs"`
	Waits  Waits  `json:"waits"`
	Oldest Oldest `json:"oldest"`
	Spool  *Spool `json:"spool,omitempty"`

	Circuit      string    `json:"circuit"` // state of the circuit breaker: closed, open or half-open
	Trips        uint64    `json:"circuit_trips"`
	Attempts     uint64    `json:"attempts"` // number of batches that were sent
	Retries      uint64    `json:"retries"`
	FailingSince time.Time `json:"failing_since,omitzero"`
	LastError    string    `json:"last_error,omitempty"` // error of the last delivery; empty after a success
	Gone         bool      `json:"gone,omitempty"`       // the destination accepts no more records, such as a pipe without a reader
}

// Pending counts the records that are not yet delivered, handled or dropped, by their place.
type Pending struct {
	Slab     uint64 `json:"slab"`
	Spill    uint64 `json:"spill"`
	Inflight uint64 `json:"inflight"`
}

// Slabs describes the memory of an output.
type Slabs struct {
	InUse int `json:"in_use"`
	Count int `json:"count"`
	Bytes int `json:"slab_bytes"` // size of one slab
}

// Waits describes the waits of callers for free memory.
type Waits struct {
	Now     int     `json:"now"`     // callers that are waiting now
	Count   uint64  `json:"count"`   // waits that have ended
	Seconds float64 `json:"seconds"` // total duration of these waits
}

// Oldest is the age of the oldest pending record. If no record is pending, it is 0.
type Oldest struct {
	Wait float64 `json:"wait_seconds"` // time since the record was accepted or written to the spool
	Age  float64 `json:"age_seconds"`  // time since the time in the record
}

// Spool describes the disk queue of an output.
type Spool struct {
	Records  uint64 `json:"records"`
	Bytes    int64  `json:"bytes"`
	MaxBytes int64  `json:"max_bytes"`
	Parked   uint64 `json:"parked,omitempty"`
}

// decode decodes a State. It replaces control characters in texts, because any program may have
// sent them.
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

// plain replaces each character that is not printable by a space.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}
