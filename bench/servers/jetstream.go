package main

import (
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
	js "github.com/forebay-log/forebay/jetstream"
)

// jetStreamWindow is the number of unanswered messages, as in the driver.
const jetStreamWindow = 4000

// startNATS starts a server with a stream in memory that keeps the last 1,000 messages.
func startNATS() (url string, end func() error, err error) {
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
	conn, client, err := connectNATS(s.ClientURL())
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

func connectNATS(url string) (*nats.Conn, jetstream.JetStream, error) {
	conn, err := nats.Connect(url)
	if err != nil {
		return nil, nil, err
	}
	client, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(jetStreamWindow))
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return conn, client, nil
}

func toJetStream(*h.Env) (*h.Subject, error) {
	url, end, err := startNATS()
	if err != nil {
		return nil, err
	}
	d, err := js.New(js.Config{Servers: url})
	if err != nil {
		return nil, err
	}
	return written(d, func() uint64 { return d.Stats().Stored }, end)
}

// natsOnly publishes the same values through PublishMsgAsync. With names it adds the Nats-Msg-Id of
// the driver.
func natsOnly(names bool) func(*h.Env) (*h.Subject, error) {
	return func(*h.Env) (*h.Subject, error) {
		url, end, err := startNATS()
		if err != nil {
			return nil, err
		}
		conn, client, err := connectNATS(url)
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
					// If the window is full, the client waits for at most 200 ms.
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
			Tally: tally(func() uint64 { return sent.Load() - failed.Load() - uint64(client.PublishAsyncPending()) }),
			Close: func() error { conn.Close(); return end() },
		}, nil
	}
}

func init() {
	h.Register(h.Row{
		Name:   "jetstream/memory",
		What:   "up to 200,000 records of 256 bytes into a stream in memory, a server in the process, 4,000 messages in flight, until stored",
		Target: "≤ 1.0 × nats.go with the same names", MaxOps: 200_000, Reference: "nats.go",
		Contenders: []h.Contender{
			{Name: name, Kind: h.Ours, Note: "window 4 of 1000 records", New: toJetStream},
			{Name: "nats.go", Kind: h.Rival, Note: "PublishMsgAsync, with Nats-Msg-Id", New: natsOnly(true)},
			{Name: "nats.go, values only", Kind: h.Reference, Note: "PublishMsgAsync, no headers", New: natsOnly(false)},
		},
		Verdict: h.Versus(name, "nats.go", 1.0),
	})
}
