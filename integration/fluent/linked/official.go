//go:build official

package main

import (
	"net"
	"strconv"

	"github.com/fluent/fluent-logger-golang/fluent"
)

func init() {
	post["official"] = func(addr string) error {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(port)
		if err != nil {
			return err
		}
		l, err := fluent.New(fluent.Config{FluentHost: host, FluentPort: n, RequestAck: true, SubSecondPrecision: true})
		if err != nil {
			return err
		}
		defer l.Close()
		return l.Post("official", map[string]any{"n": 1})
	}
}
