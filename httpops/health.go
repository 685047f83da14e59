package httpops

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
)

// maxHealthyWait is how long a record may wait in memory before its destination counts as down,
// even without a failed attempt. Such a destination hangs or is much too slow.
const maxHealthyWait = 30 * time.Second

// maxRoom is the maximum reported time until a spool is full. slab.Stats.BurstLeft has the same
// maximum.
const maxRoom = 24 * time.Hour

// Health responds with status 200 if all outputs are healthy, and 503 if one is down or the Router
// is closed. The body is JSON:
//
//	{"status":"down","refused":0,"events_lost":0,"outputs":[{
//		"name":"loki","state":"down","since":"2026-01-02T15:04:05Z",
//		"reason":"it is failing, and its circuit is open","last_error":"connection refused",
//		"circuit":"open","accepted":900,"recovered":0,"delivered":0,"handled":0,
//		"dropped":{"full":10},"pending":{"slab":90,"spill":800,"inflight":0},
//		"memory":{"bytes":524288,"room_bytes":480000,"room_ms":92000,"oldest_wait_ms":1500},
//		"spool":{"bytes":81920,"max_bytes":1073741824,"room_ms":86400000}}]}
//
// The status is "ok", "down" or "closed". The state of an output is one of these:
//
//   - "down": The last attempt failed, and the circuit breaker is not closed. Or the output has ended
//     permanently, like a pipe without a reader. Or a write to a direct output failed or hangs. Or a
//     record has waited in memory for 30 s.
//   - "failing": The last attempt failed, and another one follows soon.
//   - "ok": None of these applies.
//
// An output with a negative FlushInterval may be healthy while records wait longer.
//
// since is the time at which the state began. last_error is the error of the destination while it
// fails, otherwise the last error of the output. room_ms is the time in milliseconds until the free
// memory or the free part of the spool is used up, if records arrive at the current rate and the
// destination accepts none. It is at most a day. For memory it is 0 while callers wait or records
// are dropped. oldest_wait_ms is how long the oldest record in memory has waited. Members that do
// not apply to an output are omitted.
//
// Health is for dashboards and alarms. Do not use it as a liveness probe that restarts the program:
// an outage of the log server would become an outage of the program.
func (o *Ops) Health(w http.ResponseWriter, r *http.Request) {
	d := o.document()
	status := http.StatusOK
	if d.Status != stateOK {
		status = http.StatusServiceUnavailable
	}
	serve(w, r, status, "application/json", append(d.json(), '\n'))
}

// String returns the body of [Ops.Health], so an Ops is an expvar.Var. If the Ops may be replaced
// later, put it into an expvar.Map, because expvar.Publish panics if a name is used twice. This
// package does not import expvar, which would add /debug/vars to http.DefaultServeMux.
func (o *Ops) String() string {
	d := o.document()
	return string(d.json())
}

// Values of document.Status and outputPart.State. Only a State can be stateFailing, and only a
// Status stateClosed.
const (
	stateOK      = "ok"
	stateFailing = "failing"
	stateDown    = "down"
	stateClosed  = "closed"
)

// A document is the body of [Ops.Health].
type document struct {
	Status     string       `json:"status"`
	Refused    uint64       `json:"refused"`     // records logged after Close
	EventsLost uint64       `json:"events_lost"` // number of events that OnError was too busy to receive
	Outputs    []outputPart `json:"outputs"`
}

// An outputPart is the health of one output in a document.
type outputPart struct {
	Name      string            `json:"name"`
	State     string            `json:"state"`
	Since     time.Time         `json:"since,omitzero"`
	Reason    string            `json:"reason,omitempty"`
	LastError string            `json:"last_error,omitempty"`
	Circuit   string            `json:"circuit,omitempty"`
	Accepted  uint64            `json:"accepted"`
	Recovered uint64            `json:"recovered"`
	Delivered uint64            `json:"delivered"`
	Handled   uint64            `json:"handled"`
	Dropped   map[string]uint64 `json:"dropped"`
	Pending   pendingPart       `json:"pending"`
	Memory    *memoryPart       `json:"memory,omitempty"`
	Spool     *spoolPart        `json:"spool,omitempty"`
}

// A pendingPart contains the numbers of pending records by location.
type pendingPart struct {
	Slab     uint64 `json:"slab"`     // in memory
	Spill    uint64 `json:"spill"`    // in the spool
	Inflight uint64 `json:"inflight"` // sent and not answered
}

// A memoryPart describes the memory of an output. Times are in milliseconds.
type memoryPart struct {
	Bytes      int   `json:"bytes"`
	RoomBytes  int   `json:"room_bytes"`
	Room       int64 `json:"room_ms"`        // time until RoomBytes are used up
	OldestWait int64 `json:"oldest_wait_ms"` // time since the oldest record was accepted
}

// A spoolPart describes the spool of an output. Times are in milliseconds.
type spoolPart struct {
	Bytes    int64 `json:"bytes"`
	MaxBytes int64 `json:"max_bytes"`
	Room     int64 `json:"room_ms"`
}

// document returns the health of all outputs.
func (o *Ops) document() document {
	now := time.Now()
	st := o.from.Stats()
	d := document{Status: stateOK, Refused: st.Refused, EventsLost: st.EventsLost, Outputs: make([]outputPart, len(st.Outputs))}
	for i := range st.Outputs {
		d.Outputs[i] = outputOf(&st.Outputs[i], now)
		if d.Outputs[i].State == stateDown {
			d.Status = stateDown
		}
	}
	if st.Closed {
		d.Status = stateClosed
	}
	return d
}

// json returns the document as JSON.
func (d *document) json() []byte {
	// The error is nil, because d contains only strings, numbers and times.
	b, _ := json.Marshal(d)
	return b
}

// outputOf returns the health of the output with the statistics st at the time now.
func outputOf(st *forebay.OutputStats, now time.Time) outputPart {
	j := healthOf(st, now)
	out := outputPart{
		Name: st.Name, State: j.state, Since: j.since.UTC(), Reason: j.reason, LastError: st.LastError,
		Accepted: st.Accepted, Recovered: st.Recovered, Delivered: st.Delivered, Handled: st.Handled,
		Dropped: map[string]uint64{},
		Pending: pendingPart{st.Pending.Slab, st.Pending.Spill, st.Pending.Inflight},
	}
	for i, n := range st.Dropped {
		if n > 0 {
			out.Dropped[batch.Reason(i).String()] = n
		}
	}
	d := st.Delivery
	if d == nil {
		return out
	}
	if d.Deliver.LastError != "" {
		out.LastError = d.Deliver.LastError
	}
	out.Circuit = d.Deliver.Breaker.String()
	out.Memory = &memoryPart{d.Slab.SlabCount * d.Slab.SlabBytes, d.Slab.Room, d.Slab.BurstLeft.Milliseconds(), waited(d).Milliseconds()}
	if d.Spool.MaxBytes > 0 {
		out.Spool = &spoolPart{d.Spool.Bytes, d.Spool.MaxBytes, spoolRoom(d).Milliseconds()}
	}
	return out
}

// An outputHealth is the state of an output. For a failure, it includes the time and the reason.
type outputHealth struct {
	state  string
	since  time.Time
	reason string
}

// healthOf derives the state of an output from its statistics, see [Ops.Health].
func healthOf(st *forebay.OutputStats, now time.Time) outputHealth {
	failing := !st.FailingSince.IsZero()
	d := st.Delivery
	switch {
	case st.Stuck:
		return outputHealth{stateDown, st.FailingSince, "a write to it has not returned"}
	case d == nil && failing:
		return outputHealth{stateDown, st.FailingSince, "writes to it fail"}
	case d == nil:
		return outputHealth{state: stateOK}
	case d.Deliver.Gone:
		return outputHealth{stateDown, st.FailingSince, "it has ended, and its records are dropped"}
	case failing && d.Deliver.Breaker != deliver.Closed:
		return outputHealth{stateDown, st.FailingSince, "it is failing, and its circuit is " + d.Deliver.Breaker.String()}
	}
	if wait := waited(d); wait >= maxHealthyWait {
		return outputHealth{stateDown, now.Add(-wait), fmt.Sprintf("its oldest record in memory has waited for %v", wait.Round(time.Second))}
	}
	if failing {
		return outputHealth{stateFailing, st.FailingSince, "the last attempt failed and is being retried"}
	}
	return outputHealth{state: stateOK}
}

// waited returns how long the oldest record of the output has waited in the slabs or in the memory
// of the outlet.
func waited(d *deliver.OutputStats) time.Duration {
	return max(d.Slab.OldestWait, d.Deliver.OldestWait)
}

// spoolRoom returns the time until the spool is full if all records are stored in it at the current
// rate.
func spoolRoom(d *deliver.OutputStats) time.Duration {
	left := max(0, float64(d.Spool.MaxBytes-d.Spool.Bytes))
	if left >= d.Slab.Rate*maxRoom.Seconds() {
		return maxRoom
	}
	return time.Duration(left / d.Slab.Rate * float64(time.Second))
}
