//go:build ibm

package fluent

import (
	"net"
	"time"

	"github.com/IBM/fluent-forward-go/fluent/client"
	"github.com/IBM/fluent-forward-go/fluent/protocol"
)

// A Rival is a client of somebody else's.
type Rival struct {
	Name, Note string
	Acks       bool
	Skip       func(What) bool // what it cannot do
	New        func(addr string) (*Poster, error)
}

// Rivals returns those that this program is built with.
func Rivals() []Rival {
	noStruct := func(w What) bool { return w == Struct }
	return []Rival{
		{"IBM message", "IBM/fluent-forward-go 0.4.0, SendMessageExt", false, noStruct, func(addr string) (*Poster, error) { return ibm(addr, 1, false) }},
		{"IBM packed", "IBM/fluent-forward-go 0.4.0, SendPacked, the caller gathers 100", false, noStruct, func(addr string) (*Poster, error) { return ibm(addr, 100, false) }},
		{"IBM message acked", "the same with RequireAck", true, noStruct, func(addr string) (*Poster, error) { return ibm(addr, 1, true) }},
		{"IBM packed acked", "the same with RequireAck", true, noStruct, func(addr string) (*Poster, error) { return ibm(addr, 100, true) }},
	}
}

func ibm(addr string, gather int, ack bool) (*Poster, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	c := client.New(client.ConnectionOptions{
		Factory: &client.ConnFactory{Network: "tcp", Address: net.JoinHostPort(host, port)}, RequireAck: ack,
	})
	if err := c.Connect(); err != nil {
		return nil, err
	}
	var entries protocol.EntryList
	send := func() {
		if err := c.SendPacked(Tag, entries); err != nil {
			panic(err)
		}
		entries = entries[:0]
	}
	return &Poster{
		Post: func(v any) {
			if gather == 1 {
				if err := c.SendMessageExt(Tag, v); err != nil {
					panic(err)
				}
				return
			}
			entries = append(entries, protocol.EntryExt{Timestamp: protocol.EventTime{Time: time.Now()}, Record: v})
			if len(entries) == gather {
				send()
			}
		},
		Drain: func() error {
			if len(entries) > 0 {
				send()
			}
			return c.Disconnect()
		},
	}, nil
}
