// Package official has fluent-logger-golang as a contender.
package official

import (
	"net"
	"runtime"
	"strconv"

	"github.com/fluent/fluent-logger-golang/fluent"

	bench "github.com/forebay-log/forebay/bench/fluent"
)

// Rivals returns its ways of posting.
func Rivals() []bench.Rival {
	return []bench.Rival{
		{Name: "official async", Note: "fluent-logger-golang 1.10.2, Async, 8192 messages; a refused Post is repeated", New: with(fluent.Config{Async: true})},
		{Name: "official sync", Note: "fluent-logger-golang 1.10.2", New: with(fluent.Config{})},
		{Name: "official acked", Note: "fluent-logger-golang 1.10.2, Async, RequestAck", Acks: true, New: with(fluent.Config{Async: true, RequestAck: true})},
	}
}

func with(c fluent.Config) func(addr string, workers int) (*bench.Poster, error) {
	c.SubSecondPrecision = true
	return func(addr string, _ int) (*bench.Poster, error) {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		c := c
		c.FluentHost = host
		c.FluentPort, _ = strconv.Atoi(port)
		l, err := fluent.New(c)
		if err != nil {
			return nil, err
		}
		return &bench.Poster{
			Post: func(_ int, v any) {
				for l.Post(bench.Tag, v) != nil {
					runtime.Gosched()
				}
			},
			Drain: l.Close,
		}, nil
	}
}
