package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/forebay-log/forebay/cmd/internal/listen/listentest"
)

func TestMain(m *testing.M) {
	if args := os.Getenv("FOREBAY_RUN"); args != "" {
		os.Exit(run(strings.Split(args, "\n")))
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	testscript.Main(privateSockets{m}, map[string]func(){"forebay": func() { os.Exit(run(os.Args[1:])) }})
}

// privateSockets runs the tests with a new directory for the control sockets of programs.
type privateSockets struct{ m *testing.M }

func (a privateSockets) Run() int {
	dir, err := os.MkdirTemp("", "fb")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	os.Setenv("XDG_RUNTIME_DIR", dir)
	return a.m.Run()
}

// TestScripts runs the program like a user. The brokers that scripts start run in the test process.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"), RequireExplicitExec: true, RequireUniqueNames: true,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"kafka": startKafka, "consume": consumeKafka, "nats": startNATS, "stored": storedNATS, "otlp": startOTLP, "await": await, "cert": writeCert, "port": freePort,
		},
		Setup: func(env *testscript.Env) error {
			env.Setenv("TZ", "UTC")
			env.Setenv("GORACE", os.Getenv("GORACE"))
			env.Setenv("XDG_RUNTIME_DIR", env.Getenv("WORK"))
			return nil
		},
	})
}

// startKafka implements the script command "kafka [tls] [user:USER PASSWORD] TOPIC…". It starts
// brokers with these topics and sets the variable KAFKA to their addresses. The brokers accept
// batches of up to 1000 bytes.
func startKafka(ts *testscript.TestScript, _ bool, args []string) {
	var opts []kfake.Opt
	if len(args) > 0 && args[0] == "tls" {
		opts = append(opts, kfake.TLS(serverTLS(ts)))
		args = args[1:]
	}
	opts = append(opts, kfake.NumBrokers(2), kfake.AllowAutoTopicCreation(), kfake.BrokerConfigs(map[string]string{"message.max.bytes": "1000"}))
	if len(args) > 1 && strings.HasPrefix(args[0], "user:") {
		opts = append(opts, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", strings.TrimPrefix(args[0], "user:"), args[1]))
		args = args[2:]
	}
	c, err := kfake.NewCluster(append(opts, kfake.SeedTopics(3, args...))...)
	ts.Check(err)
	ts.Defer(c.Close)
	ts.Setenv("KAFKA", strings.Join(c.ListenAddrs(), ","))
}

// freePort implements the script command "port VAR". It sets the variable VAR to an address on
// which no process listens.
func freePort(ts *testscript.TestScript, _ bool, args []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Setenv(args[0], l.Addr().String())
	ts.Check(l.Close())
}

// writeCert implements the script command "cert". It writes cert.pem, a certificate for 127.0.0.1,
// and key.pem.
func writeCert(ts *testscript.TestScript, _ bool, _ []string) {
	cert, key, err := listentest.NewCert()
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs("cert.pem"), cert, 0o600))
	ts.Check(os.WriteFile(ts.MkAbs("key.pem"), key, 0o600))
}

// serverTLS returns a TLS configuration with the certificate of writeCert.
func serverTLS(ts *testscript.TestScript) *tls.Config {
	pair, err := tls.LoadX509KeyPair(ts.MkAbs("cert.pem"), ts.MkAbs("key.pem"))
	ts.Check(err)
	return &tls.Config{Certificates: []tls.Certificate{pair}}
}

// consumeKafka implements the script command "consume FILE N TOPIC…". It reads N records from the
// topics and writes them to FILE as sorted lines "TOPIC KEY VALUE".
func consumeKafka(ts *testscript.TestScript, _ bool, args []string) {
	var want int
	fmt.Sscan(args[1], &want)
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(ts.Getenv("KAFKA"), ",")...), kgo.ConsumeTopics(args[2:]...), kgo.DisableClientMetrics())
	ts.Check(err)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var lines []string
	for len(lines) < want && ctx.Err() == nil {
		cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			lines = append(lines, fmt.Sprintf("%s %s %s\n", r.Topic, r.Key, r.Value))
		})
	}
	slices.Sort(lines)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Join(lines, "")), 0o600))
}

// startNATS implements the script command "nats [tls] [USER PASSWORD | TOKEN]". It starts a server
// and sets the variable NATS to its address. The server has the stream LOGS for the subjects
// "logs.>", and accepts messages of up to 4000 bytes.
func startNATS(ts *testscript.TestScript, _ bool, args []string) {
	o := &server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, JetStream: true, StoreDir: ts.MkAbs("nats"), MaxPayload: 4000}
	var login []nats.Option
	if len(args) > 0 && args[0] == "tls" {
		o.TLSConfig = serverTLS(ts)
		login = append(login, nats.RootCAs(ts.MkAbs("cert.pem")))
		args = args[1:]
	}
	switch len(args) {
	case 1:
		o.Authorization = args[0]
		login = append(login, nats.Token(args[0]))
	case 2:
		o.Username, o.Password = args[0], args[1]
		login = append(login, nats.UserInfo(args[0], args[1]))
	}
	s, err := server.NewServer(o)
	ts.Check(err)
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		ts.Fatalf("the server does not start")
	}
	ts.Defer(func() { s.Shutdown(); s.WaitForShutdown() })
	conn, err := nats.Connect(fmt.Sprintf("nats://127.0.0.1:%d", s.Addr().(*net.TCPAddr).Port), login...)
	ts.Check(err)
	ts.Defer(conn.Close)
	js, err := jetstream.New(conn)
	ts.Check(err)
	_, err = js.CreateStream(context.Background(), jetstream.StreamConfig{Name: "LOGS", Subjects: []string{"logs.>"}})
	ts.Check(err)
	ts.Setenv("NATS", s.Addr().String())
	streams[ts.Getenv("WORK")] = js
}

// streams contains the JetStream connections of the running scripts, by the directory of the
// script.
var streams = map[string]jetstream.JetStream{}

// storedNATS implements the script command "stored FILE N". It writes the N messages of the stream
// to FILE as lines "SUBJECT VALUE".
func storedNATS(ts *testscript.TestScript, _ bool, args []string) {
	var want int
	fmt.Sscan(args[1], &want)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := streams[ts.Getenv("WORK")].Stream(ctx, "LOGS")
	ts.Check(err)
	var text strings.Builder
	for i := range want {
		m, err := s.GetMsg(ctx, uint64(i+1))
		ts.Check(err)
		fmt.Fprintf(&text, "%s %s\n", m.Subject, m.Data)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text.String()), 0o600))
}

// startOTLP implements the script command "otlp [tls] [TOKEN]". It starts a receiver of OTLP over
// gRPC and sets the variable OTLP to its address. The receiver accepts requests with the bearer
// token TOKEN and appends them to the file otlp.got.
func startOTLP(ts *testscript.TestScript, _ bool, args []string) {
	var opts []grpc.ServerOption
	if len(args) > 0 && args[0] == "tls" {
		opts = append(opts, grpc.Creds(credentials.NewTLS(serverTLS(ts))))
		args = args[1:]
	}
	file, err := os.OpenFile(ts.MkAbs("otlp.got"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	ts.Check(err)
	s := grpc.NewServer(append(opts, grpc.ForceServerCodecV2(raw{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		var req []byte
		if err := stream.RecvMsg(&req); err != nil {
			return err
		}
		md, _ := metadata.FromIncomingContext(stream.Context())
		if got := md["authorization"]; len(args) > 0 && !slices.Equal(got, []string{"Bearer " + args[0]}) {
			return status.Error(codes.Unauthenticated, "no such token")
		}
		if _, err := file.Write(req); err != nil {
			return err
		}
		return stream.SendMsg([]byte{})
	}))...)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(l) }()
	ts.Defer(func() { s.Stop(); <-served; file.Close() })
	ts.Setenv("OTLP", l.Addr().String())
}

// raw is a gRPC codec that does not decode messages.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// await implements the script command "await FILE REGEXP". It waits until the content of FILE
// matches.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await FILE REGEXP")
	}
	re := regexp.MustCompile("(?m)" + args[1])
	var text []byte
	for late := time.Now().Add(time.Minute); time.Now().Before(late); time.Sleep(2 * time.Millisecond) {
		if text, _ = os.ReadFile(ts.MkAbs(args[0])); re.Match(text) {
			return
		}
	}
	ts.Fatalf("%s has no match for %q: %s", args[0], args[1], text)
}
