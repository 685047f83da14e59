//go:build !ibm

package fluent

import (
	"net"
	"runtime"
	"strconv"

	"github.com/fluent/fluent-logger-golang/fluent"
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
	return []Rival{
		{"official async", "fluent-logger-golang 1.10.2, Async, 8192 messages; a refused Post is repeated", false, nil,
			func(addr string) (*Poster, error) { return official(addr, fluent.Config{Async: true}) }},
		{"official sync", "fluent-logger-golang 1.10.2", false, nil,
			func(addr string) (*Poster, error) { return official(addr, fluent.Config{}) }},
		{"official acked", "fluent-logger-golang 1.10.2, Async, RequestAck", true, nil,
			func(addr string) (*Poster, error) {
				return official(addr, fluent.Config{Async: true, RequestAck: true})
			}},
	}
}

func official(addr string, c fluent.Config) (*Poster, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	c.FluentHost = host
	c.FluentPort, _ = strconv.Atoi(port)
	c.SubSecondPrecision = true
	l, err := fluent.New(c)
	if err != nil {
		return nil, err
	}
	return &Poster{
		Post: func(v any) {
			for l.Post(Tag, v) != nil {
				runtime.Gosched()
			}
		},
		Drain: l.Close,
	}, nil
}
