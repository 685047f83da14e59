// Command jetstream measures the driver of JetStream beside bare nats.go, both into a server in
// the same process. It has a module of its own because of what it links.
//
//	GOWORK=off go -C bench/jetstream run . [-rows regexp] [-count N]
//
// make bench runs it, too; its results are in the same file.
package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	h "github.com/forebay-log/forebay/bench/harness"
	"github.com/forebay-log/forebay/dedup"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	js "github.com/forebay-log/forebay/jetstream"
	"github.com/forebay-log/forebay/slab"
)

const (
	name   = "forebay"
	size   = 256
	most   = 200_000
	window = 4000 // messages under way, as many as the driver has
)

// line is a JSON line of size bytes.
func line() []byte {
	b := []byte(`{"time":"2026-01-02T03:04:05Z","level":"INFO","msg":"`)
	b = append(b, bytes.Repeat([]byte{'x'}, size-len(b)-3)...)
	return append(b, "\"}\n"...)
}

// serve starts a server with a stream in memory, which keeps the last 1,000 messages.
func serve() (url string, end func() error, err error) {
	dir, err := os.MkdirTemp("", "jetstream")
	if err != nil {
		return "", nil, err
	}
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, JetStream: true, StoreDir: dir})
	if err != nil {
		return "", nil, err
	}
	s.Start()
	end = func() error {
		s.Shutdown()
		s.WaitForShutdown()
		return os.RemoveAll(dir)
	}
	if !s.ReadyForConnections(20 * time.Second) {
		return "", nil, errors.Join(errors.New("the server does not start"), end())
	}
	conn, client, err := connect(s.ClientURL())
	if err == nil {
		defer conn.Close()
		_, err = client.CreateStream(context.Background(), jetstream.StreamConfig{
			Name: "LOGS", Subjects: []string{"logs"}, Storage: jetstream.MemoryStorage, MaxMsgs: 1000, Duplicates: 2 * time.Minute,
		})
	}
	if err != nil {
		return "", nil, errors.Join(err, end())
	}
	return s.ClientURL(), end, nil
}

func connect(url string) (*nats.Conn, jetstream.JetStream, error) {
	conn, err := nats.Connect(url)
	if err != nil {
		return nil, nil, err
	}
	client, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(window))
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return conn, client, nil
}

// ours writes records until all are stored.
func ours(*h.Env) (*h.Subject, error) {
	url, end, err := serve()
	if err != nil {
		return nil, err
	}
	d, err := js.New(js.Config{Servers: url})
	if err != nil {
		return nil, err
	}
	out, err := deliver.NewOutput(d, &deliver.OutputOptions{
		Name: name, Codec: encode.JSON(nil).Codec(), BufferBytes: 4 << 20,
		Slab: slab.Options{SlabBytes: 256 << 10, WhenFull: slab.Block()}, CloseTimeout: time.Minute,
	})
	if err != nil {
		return nil, err
	}
	rec := line()
	return &h.Subject{
		Run: func(_, n int) {
			for range n {
				out.Write(rec)
			}
		},
		Drain: out.Close,
		Tally: func() (h.Tally, error) {
			n := d.Stats().Stored
			return h.Tally{Records: n, Bytes: n * size}, nil
		},
		Close: end,
	}, nil
}

// bare publishes the same values by PublishMsgAsync; with names also with the Nats-Msg-Id that
// the driver adds.
func bare(names bool) func(*h.Env) (*h.Subject, error) {
	return func(*h.Env) (*h.Subject, error) {
		url, end, err := serve()
		if err != nil {
			return nil, err
		}
		conn, client, err := connect(url)
		if err != nil {
			return nil, errors.Join(err, end())
		}
		rec := line()
		value := rec[:len(rec)-1]
		id := dedup.ID{Origin: [16]byte{1}}
		var sent, failed atomic.Uint64
		return &h.Subject{
			Run: func(_, n int) {
				for range n {
					m := &nats.Msg{Subject: "logs", Data: value}
					if names {
						id.Ticket++
						m.Header = nats.Header{"Nats-Msg-Id": []string{id.String()}}
					}
					// The client makes a caller wait for 200 ms at most where the window is full.
					for {
						_, err := client.PublishMsgAsync(m)
						if !errors.Is(err, jetstream.ErrTooManyStalledMsgs) {
							if err != nil {
								failed.Add(1)
							}
							break
						}
					}
					sent.Add(1)
				}
			},
			Drain: func() error {
				select {
				case <-client.PublishAsyncComplete():
					return nil
				case <-time.After(time.Minute):
					return errors.New("no answer for a minute")
				}
			},
			Tally: func() (h.Tally, error) {
				n := sent.Load() - failed.Load() - uint64(client.PublishAsyncPending())
				return h.Tally{Records: n, Bytes: n * size}, nil
			},
			Close: func() error { conn.Close(); return end() },
		}, nil
	}
}

func rows() []h.Row {
	return []h.Row{{
		Name:   "jetstream/memory",
		What:   "up to 200000 records of 256 bytes into a stream in memory, a server in the process, 4000 messages under way, until stored",
		Target: "≤ 1.0 × nats.go with the same names", MaxOps: most, Reference: "nats.go",
		Contenders: []h.Contender{
			{Name: name, Kind: h.Ours, Note: "window 4 of 1000 records", New: ours},
			{Name: "nats.go", Kind: h.Rival, Note: "PublishMsgAsync, with Nats-Msg-Id", New: bare(true)},
			{Name: "nats.go, values only", Kind: h.Reference, Note: "PublishMsgAsync, no headers", New: bare(false)},
		},
		Verdict: h.Versus(name, "nats.go", 1.0),
	}}
}

func init() { h.Register(rows()...) }

func main() { os.Exit(h.Program("../results/latest.json", time.Second)) }
