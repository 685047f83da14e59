// Package listen contains the code that all listeners share: records, the sink that accepts them,
// and limits on the resources that clients can use. Its subpackages implement the protocols.
package listen

import (
	"context"
	"log/slog"
	"time"
)

// A Record is one record that a client has sent. Its memory belongs to the listener and is valid
// until Put returns.
type Record struct {
	Source   string    // forward, loki or syslog
	Tag      string    // Forward: the tag; syslog: the name of the program
	Tenant   string    // Loki: X-Scope-OrgID
	Labels   []Label   // Loki: labels of the stream; syslog: facility, host and so on
	Metadata []Label   // Loki: structured metadata; syslog: structured data; Forward: metadata of Fluent Bit
	Time     time.Time // zero if the client sent none
	Level    slog.Level
	HasLevel bool   // Level is valid
	Body     []byte // a JSON object on one line, or text
	JSON     bool   // Body is a JSON object
}

// A Label is a name and its value.
type Label struct{ Name, Value string }

// A Sink accepts the records of all listeners. Many goroutines call it.
//
// If a call returns an error, the listener ends the connection without an answer. Clients that wait
// for an answer then send again. The sink itself reports its errors.
type Sink interface {
	// Put accepts a copy of r. It may block until there is room or ctx is done. Meanwhile the
	// listener does not read from the connection.
	Put(ctx context.Context, r *Record) error
	// Commit returns nil when every record that was passed to Put before the call is delivered or
	// stored. The listener then answers the client. Commit returns an error when ctx is done.
	Commit(ctx context.Context) error
}

// An Action is the treatment of a message. Tests use it to inject faults.
type Action uint8

const (
	Accept Action = iota
	Reject        // the message is rejected; Loki answers 429 or 500, the other protocols do not answer
	Reset         // the message is rejected and the connection is reset
)
