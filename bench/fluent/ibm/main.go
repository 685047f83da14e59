// Command ibm measures IBM/fluent-forward-go for the program bench, which asks it
// on standard input: see fluent.Elsewhere.
package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/IBM/fluent-forward-go/fluent/client"
	"github.com/IBM/fluent-forward-go/fluent/protocol"

	"github.com/forebay-log/forebay/bench/fluent"
)

func main() {
	rivals := fluent.IBM(2)
	for i := range rivals {
		r := &rivals[i]
		gather := 1
		if strings.Contains(r.Name, "packed") {
			gather = 100
		}
		r.New = func(addr string, workers int) (*fluent.Poster, error) {
			return posters(addr, workers, gather, r.Acks, strings.HasSuffix(r.Name, ", own"))
		}
	}
	if err := fluent.Serve(os.Stdin, os.Stdout, rivals); err != nil {
		fmt.Fprintln(os.Stderr, "ibm:", err)
		os.Exit(1)
	}
}

// locked is a client behind a lock, as it is for one goroutine at a time.
type locked struct {
	mu sync.Mutex
	c  *client.Client
}

// one is what one goroutine has.
type one struct {
	to      *locked
	entries protocol.EntryList
	gather  int
	_       [64]byte
}

func (o *one) send() {
	o.to.mu.Lock()
	defer o.to.mu.Unlock()
	if err := o.to.c.SendPacked(fluent.Tag, o.entries); err != nil {
		panic(err)
	}
	o.entries = o.entries[:0]
}

func (o *one) post(v any) {
	if o.gather == 1 {
		o.to.mu.Lock()
		defer o.to.mu.Unlock()
		if err := o.to.c.SendMessageExt(fluent.Tag, v); err != nil {
			panic(err)
		}
		return
	}
	o.entries = append(o.entries, protocol.EntryExt{Timestamp: protocol.EventTime{Time: time.Now()}, Record: v})
	if len(o.entries) == o.gather {
		o.send()
	}
}

func posters(addr string, workers, gather int, ack, own bool) (*fluent.Poster, error) {
	all := make([]one, workers)
	var clients []*locked
	for i := range all {
		if i == 0 || own {
			c := client.New(client.ConnectionOptions{Factory: &client.ConnFactory{Network: "tcp", Address: addr}, RequireAck: ack})
			if err := c.Connect(); err != nil {
				return nil, err
			}
			clients = append(clients, &locked{c: c})
		}
		all[i] = one{to: clients[len(clients)-1], gather: gather}
	}
	return &fluent.Poster{
		Post: func(worker int, v any) { all[worker].post(v) },
		Drain: func() error {
			for i := range all {
				if len(all[i].entries) > 0 {
					all[i].send()
				}
			}
			for _, l := range clients {
				if err := l.c.Disconnect(); err != nil {
					return err
				}
			}
			return nil
		},
	}, nil
}
