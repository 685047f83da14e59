//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/forebay-log/forebay/dedup"
	"github.com/forebay-log/forebay/internal/testkit"
)

// forebay returns a command that runs this program with args.
func forebay(t *testing.T, stderr *bytes.Buffer, args ...string) *exec.Cmd {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "FOREBAY_RUN="+strings.Join(args, "\n"))
	cmd.Stderr = stderr
	return cmd
}

// If a program that copies records from Kafka to a file is killed repeatedly, no record is lost,
// and each kill causes a limited number of duplicates. A duplicate has the id of the first copy.
// The first copies are in order.
func TestKilledKafkaInputLosesNothing(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "logs"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	brokers := strings.Join(c.ListenAddrs(), ",")
	testKills(t, "kafka://"+brokers+"/logs", "forebay-id",
		fmt.Sprintf("{type: kafka, servers: %q, topics: logs, group: g, instance: one, fields: forebay-id}", brokers), true, 20_000)
}

// If a program that copies records from JetStream to a file is killed repeatedly, no record is
// lost, and each kill causes a limited number of duplicates. A duplicate has the id of the first
// copy. Records need not be in order, because the server sends messages of a killed reader again
// after newer messages.
func TestKilledNATSInputLosesNothing(t *testing.T) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server does not start")
	}
	address := s.Addr().(*net.TCPAddr).String()
	conn, err := nats.Connect("nats://" + address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "LOGS", Subjects: []string{"logs"}})
	if err == nil {
		_, err = stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{
			Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 2 * time.Second, MaxAckPending: 5000,
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	testKills(t, "nats://"+address+"/logs", nats.MsgIdHdr,
		fmt.Sprintf("{type: nats, servers: %q, stream: LOGS, consumer: c, fields: %s}", address, nats.MsgIdHdr), false, 5000)
}

// testKills writes records to a destination, and repeatedly kills a program that copies them from
// an input to a file. It checks that no record is missing, and that there are at most maxPerKill
// duplicates per kill. If ordered is true, the first copies must be in order. id is the name of the
// field with the id of a record.
func testKills(t *testing.T, to, id, input string, ordered bool, maxPerKill int) {
	rounds := testkit.Rounds(t, 6, 200)
	records := 30_000 + 5000*rounds
	rng := testkit.Rand(testkit.Seed(t))
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	conf := filepath.Join(dir, "forebay.yaml")
	text := fmt.Sprintf("inputs: {in: %s}\noutputs: {out: {to: %q, encode: json}}\n", input, "file:"+out)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var lines bytes.Buffer
	for i := range records {
		fmt.Fprintf(&lines, "{\"i\":%d}\n", i)
	}
	var pipeStderr bytes.Buffer
	first := forebay(t, &pipeStderr, "pipe", "--to", to, "--crash-safe", filepath.Join(dir, "safe"), "--drain-timeout", "5m")
	first.Stdin = &lines
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() { sent <- first.Wait() }()

	for round := range rounds {
		cmd := forebay(t, new(bytes.Buffer), "run", "-c", conf, "-q")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		enough := size(out) + 1 + rng.Int64N(200_000)
		for began := time.Now(); time.Since(began) < 3*time.Second && size(out) < enough; {
			time.Sleep(2 * time.Millisecond)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("round %d: %v: %s", round, err, cmd.Stderr)
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err, pipeStderr.String())
	}
	var stderr bytes.Buffer
	last := forebay(t, &stderr, "run", "-c", conf)
	if err := last.Start(); err != nil {
		t.Fatal(err)
	}
	var got map[int]bool
	for end := time.Now().Add(2 * time.Minute); len(got) < records && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		got, _ = readRecords(t, out, id, ordered)
	}
	if err := last.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := last.Wait(); err != nil {
		t.Errorf("%v: %s", err, &stderr)
	}
	got, twice := readRecords(t, out, id, ordered)
	if len(got) != records {
		t.Errorf("%d records, want %d: %s", len(got), records, &stderr)
	}
	t.Logf("%d kills, %d duplicates", rounds, twice)
	if twice > rounds*maxPerKill {
		t.Errorf("%d duplicates, want at most %d", twice, rounds*maxPerKill)
	}
}

func size(file string) int64 {
	st, err := os.Stat(file)
	if err != nil {
		return 0
	}
	return st.Size()
}

// readRecords returns the numbers of the records in a file, and the number of duplicates. It skips
// incomplete lines. If ordered is true, it checks that the first copies are in order.
func readRecords(t *testing.T, file, id string, ordered bool) (got map[int]bool, twice int) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got = map[int]bool{}
	w := dedup.New(nil)
	last := -1
	for line := range bytes.Lines(text) {
		var rec map[string]any
		if json.Unmarshal(line, &rec) != nil {
			continue
		}
		name, err := dedup.Parse(fmt.Append(nil, rec[id]))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if !w.First(name) {
			continue
		}
		i := int(rec["i"].(float64))
		if ordered && i < last {
			t.Fatalf("record %d comes after record %d", i, last)
		}
		last, got[i] = i, true
	}
	return got, int(w.Stats().Twice)
}
