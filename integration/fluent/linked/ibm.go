//go:build ibm

package main

import (
	"github.com/IBM/fluent-forward-go/fluent/client"
	"github.com/IBM/fluent-forward-go/fluent/protocol"
)

func init() {
	post["ibm"] = func(addr string) error {
		c := client.New(client.ConnectionOptions{Factory: &client.ConnFactory{Network: "tcp", Address: addr}, RequireAck: true})
		if err := c.Connect(); err != nil {
			return err
		}
		defer c.Disconnect()
		entries := protocol.EntryList{{Timestamp: protocol.EventTimeNow(), Record: map[string]any{"n": 1}}}
		m, err := protocol.NewPackedForwardMessage("ibm", entries)
		if err != nil {
			return err
		}
		return c.Send(m)
	}
}
