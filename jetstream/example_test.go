package jetstream_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/dedup"
	js "github.com/forebay-log/forebay/jetstream"
)

// The subject of each record depends on its application. The server drops duplicates within its
// duplicate window, and the consumer detects later ones.
func Example() {
	url, stop := serve()
	defer stop()
	log, err := forebay.New(js.To(url, js.Subject("logs.{app}")))
	if err != nil {
		fmt.Println(err)
		return
	}
	log.Info("order paid", slog.String("app", "shop"), slog.Int("order", 7))
	log.Info("order sent", slog.String("app", "store.eu"), slog.Int("order", 7))
	if err := log.Close(); err != nil {
		fmt.Println(err)
	}
	consume(url, 2)
	// Output:
	// logs.shop true
	// logs.store_eu true
}

// consume reads count messages.
func consume(url string, count int) {
	conn, err := nats.Connect(url)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	client, err := jetstream.New(conn)
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := client.CreateConsumer(context.Background(), "LOGS", jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		fmt.Println(err)
		return
	}
	msgs, err := c.Fetch(count)
	if err != nil {
		fmt.Println(err)
		return
	}
	came := dedup.New(nil)
	for m := range msgs.Messages() {
		id, err := dedup.Parse([]byte(m.Headers().Get("Nats-Msg-Id")))
		if err != nil {
			fmt.Println(err)
		}
		fmt.Println(m.Subject(), came.First(id))
		m.Ack()
	}
}

// serve starts a server with the stream LOGS.
func serve() (url string, stop func()) {
	dir, err := os.MkdirTemp("", "jetstream")
	if err != nil {
		panic(err)
	}
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, JetStream: true, StoreDir: dir})
	if err != nil {
		panic(err)
	}
	s.Start()
	s.ReadyForConnections(20 * time.Second)
	conn, err := nats.Connect(s.ClientURL())
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	client, err := jetstream.New(conn)
	if err == nil {
		_, err = client.CreateStream(context.Background(), jetstream.StreamConfig{Name: "LOGS", Subjects: []string{"logs.>"}, Duplicates: 2 * time.Minute})
	}
	if err != nil {
		panic(err)
	}
	return s.ClientURL(), func() {
		s.Shutdown()
		s.WaitForShutdown()
		os.RemoveAll(dir)
	}
}

func ExampleNew() {
	_, err := js.New(js.Config{Servers: "nats://localhost:4222", Subject: "logs.{app}.>"})
	fmt.Println(err)
	// Output: jetstream: Subject: "logs.{app}.>" has '>'; a subject to write to has no spaces and no wildcards
}

func ExampleTo_configure() {
	output := js.To("nats://localhost:4222", forebay.Configure(func(c *js.Config) {
		c.Stream = "LOGS"
		c.Sole = true
		c.Credentials = "/etc/shop/logs.creds"
	}), forebay.Spool("/var/lib/shop/spool"))
	_ = output // pass it to forebay.New
}
