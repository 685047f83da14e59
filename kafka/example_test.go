package kafka_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/dedup"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/kafka"
)

// Each app has a separate topic, and the records of each user arrive in order.
func ExampleTo() {
	cluster := kfake.MustCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "logs.shop"))
	defer cluster.Close()
	brokers := strings.Join(cluster.ListenAddrs(), ",")

	log, err := forebay.New(kafka.To("kafka://" + brokers + "/logs.{app}?key={user}&compression=lz4"))
	if err != nil {
		fmt.Println(err)
		return
	}
	log.Info("paid", slog.String("app", "shop"), slog.String("user", "ann"), slog.String("trace_id", "4bf92f3577b34da6"))
	if err := log.Close(); err != nil {
		fmt.Println(err)
	}

	consumer, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics("logs.shop"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer consumer.Close()
	window := dedup.New(nil)
	consumer.PollFetches(context.Background()).EachRecord(func(r *kgo.Record) {
		for _, h := range r.Headers {
			switch h.Key {
			case dedup.Header:
				id, err := dedup.Parse(h.Value)
				fmt.Println("first:", err == nil && window.First(id))
			default:
				fmt.Printf("%s: %s\n", h.Key, h.Value)
			}
		}
		fmt.Printf("key: %s\nvalue: %s\n", r.Key, r.Value[strings.Index(string(r.Value), `"msg"`):])
	})
	// Output:
	// first: true
	// level: info
	// trace-id: 4bf92f3577b34da6
	// key: ann
	// value: "msg":"paid","app":"shop","user":"ann","trace_id":"4bf92f3577b34da6"}
}

// The program sets the credentials, so that the URL of the destination does not contain them.
func ExampleTo_configure() {
	spec := kafka.To("kafka+tls://b1.example:9093/logs", forebay.Configure(func(c *kafka.Config) {
		c.User, c.Password = "shop", "from a secret store" // SCRAM-SHA-512
	}), forebay.Name("kafka"))
	log, err := forebay.New(spec)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(log.Close())
	// Output: <nil>
}

// The error of ParseURL names the problem and contains no password.
func ExampleParseURL() {
	c, err := kafka.ParseURL("kafka://ann:s3cret@b1:9092,b2/logs?mechanism=plain&window=8")
	fmt.Println(c.Brokers, c.Topic, c.User, c.Mechanism, c.Window, err)
	_, err = kafka.ParseURL("kafka://ann:s3cret@b1:9092/logs?windows=8")
	fmt.Println(err)
	// Output:
	// [b1:9092 b2] logs ann plain 8 <nil>
	// kafka: cannot read the destination: unknown parameter "windows": want one of autocreate, batch, client, compression, dial-timeout, key, mechanism, request-timeout, timeout, trace, window
}

// deliver.NewOutput adds memory and delivery to a Driver. The output is an io.Writer, for example
// for zap, zerolog and the standard log.
func ExampleNew() {
	cluster := kfake.MustCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "logs"))
	defer cluster.Close()
	d, err := kafka.New(kafka.Config{Brokers: cluster.ListenAddrs(), Topic: "logs"})
	if err != nil {
		fmt.Println(err)
		return
	}
	out, err := deliver.NewOutput(d, &deliver.OutputOptions{Name: "kafka"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Fprintln(out, "one")
	fmt.Fprintln(out, "two")
	fmt.Println(out.Close(), d.Stats().Records, d.Stats().Sessions)
	// Output: <nil> 2 1
}
