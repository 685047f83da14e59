package forebaygrpc

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/grpclog"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/forebaytest"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
)

func TestMain(m *testing.M) {
	if os.Getenv("FOREBAY_GRPC_SERVER") != "" {
		serve()
		return
	}
	goleak.VerifyTestMain(m)
}

// use makes gRPC pass its messages to the given Logger. No connection may exist in this process,
// because gRPC reads its logger without a lock.
func use(log *forebay.Logger) { grpclog.SetLoggerV2(New(log)) }

// Each function of grpclog logs with its level, its message and the source position of its caller.
func TestEveryFunctionHasLevelMessageAndPosition(t *testing.T) {
	rec := forebaytest.New(t)
	use(rec.Logger())
	core := grpclog.Component("test")
	for _, c := range []struct {
		call      func()
		level     slog.Level
		msg       string
		component any
	}{
		{func() { grpclog.Info("a", 1, 2, "b") }, slog.LevelInfo, "a1 2b", nil},
		{func() { grpclog.Infoln("a", 1, "b") }, slog.LevelInfo, "a 1 b", nil},
		{func() { grpclog.Infof("%d-%s", 1, "b") }, slog.LevelInfo, "1-b", nil},
		{func() { grpclog.InfoDepth(0, "a", 1) }, slog.LevelInfo, "a 1", nil},
		{func() { grpclog.Warning("a", "b") }, slog.LevelWarn, "ab", nil},
		{func() { grpclog.Warningln("a", "b") }, slog.LevelWarn, "a b", nil},
		{func() { grpclog.Warningf("%q", "b") }, slog.LevelWarn, `"b"`, nil},
		{func() { grpclog.WarningDepth(0, "[a", 1) }, slog.LevelWarn, "[a 1", nil},
		{func() { grpclog.Error("a") }, slog.LevelError, "a", nil},
		{func() { grpclog.Errorln() }, slog.LevelError, "", nil},
		{func() { grpclog.Errorf("x") }, slog.LevelError, "x", nil},
		{func() { grpclog.ErrorDepth(0) }, slog.LevelError, "", nil},
		{func() { core.Info("a", 1) }, slog.LevelInfo, "a 1", "test"},
		{func() { core.Warningf("%d", 7) }, slog.LevelWarn, "7", "test"},
		{func() { core.Errorln("a") }, slog.LevelError, "a", "test"},
		{func() { core.InfoDepth(0, "a") }, slog.LevelInfo, "a", "test"},
	} {
		n := len(rec.Records())
		c.call()
		got := rec.Records()[n:]
		if len(got) != 1 || got[0].Level != c.level || got[0].Message != c.msg || got[0].Attrs["component"] != c.component {
			t.Errorf("%v, want %v %q", got, c.level, c.msg)
			continue
		}
		if !strings.HasPrefix(got[0].Source, "grpc/logger_test.go:") {
			t.Errorf("%v: source %q", got[0], got[0].Source)
		}
	}
}

type panicky struct{}

func (p panicky) String() string { panic(p) }

// If a method of an argument panics, the text of the panic is logged.
func TestPanicInArgumentBecomesText(t *testing.T) {
	rec := forebaytest.New(t)
	l := New(rec.Logger())
	l.Info("a", panicky{})
	l.Infoln("b", panicky{})
	l.Infof("c %v", panicky{})
	l.(grpclog.DepthLoggerV2).InfoDepth(0, "d", panicky{})
	for i, r := range rec.Records() {
		if !strings.Contains(r.Message, "PANIC") {
			t.Errorf("%d: %q", i, r.Message)
		}
	}
	if n := len(rec.Records()); n != 4 {
		t.Errorf("%d records", n)
	}
}

func TestDepthSelectsThePosition(t *testing.T) {
	rec := forebaytest.New(t)
	use(rec.Logger())
	helper := func() { grpclog.InfoDepth(1, "m") }
	line := func() int {
		_, s, _ := strings.Cut(rec.Records()[len(rec.Records())-1].Source, ":")
		n, _ := strconv.Atoi(s)
		return n
	}
	grpclog.Info("m")
	here := line()
	helper()
	if n := line(); n != here+2 {
		t.Errorf("line %d, want %d", n, here+2)
	}
}

// A flushCounter is a buffered output that counts its flushes.
type flushCounter struct{ flushed int }

func (k *flushCounter) Write(p []byte) (int, error)          { return len(p), nil }
func (k *flushCounter) WriteRecord([]byte, batch.Meta) error { return nil }
func (k *flushCounter) Flush() error                         { k.flushed++; return nil }

func TestFatalFlushes(t *testing.T) {
	k, rec := &flushCounter{}, forebaytest.New(t)
	log, err := forebay.New(forebay.Writer(k), forebay.Writer(rec))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	l := New(log).(grpclog.DepthLoggerV2) // called directly, because grpclog.Fatal would exit the test
	l.Error("m")
	if k.flushed != 0 {
		t.Error("an error waits")
	}
	l.Fatal("a")
	l.Fatalln("b")
	l.Fatalf("c")
	l.FatalDepth(0, "[core]", "d")
	if k.flushed != 4 {
		t.Errorf("flushed %d times", k.flushed)
	}
	for _, msg := range []string{"a", "b", "c", "d"} {
		rec.Want(slog.LevelError+4, msg)
	}
}

func TestVerbosityFollowsDebugLevel(t *testing.T) {
	log, err := forebay.New(forebay.Writer(&flushCounter{}))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	l := New(log.Named("grpc"))
	if !l.V(0) || l.V(1) {
		t.Error("at INFO V(0) holds, and no other")
	}
	log.Router().SetLevel("grpc", slog.LevelDebug)
	if !l.V(2) {
		t.Error("at DEBUG V(2) does not hold")
	}
	log.Router().SetLevel("grpc", slog.LevelError)
	if n := allocs.PerRun(100, func() { l.Infof("m"); l.Info(); l.Warningln() }); n > 0 {
		t.Errorf("%v allocations for nothing", n)
	}
	if l = New(nil); l.V(1) {
		t.Error("nil wants to know more")
	}
	l.Fatal("nothing happens")
}

// A gRPC server and client in a child process log through forebay.
func TestRealServerLogsThroughForebay(t *testing.T) {
	rec := forebaytest.New(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "FOREBAY_GRPC_SERVER=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	rec.Write(out.Bytes())
	from := map[any]bool{}
	for _, r := range rec.Records() {
		from[r.Attrs["component"]] = true
		if strings.HasPrefix(r.Message, "[core]") || r.Source == "" || strings.HasPrefix(r.Source, "grpclog/") {
			t.Error(r)
		}
	}
	if !from["core"] {
		t.Errorf("nothing of core in %d records", len(rec.Records()))
	}
}

// serve is the child process of TestRealServerLogsThroughForebay.
func serve() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	log, err := forebay.New(forebay.Writer(os.Stdout, forebay.Encoder(encode.JSON(&encode.Options{AddSource: true}))))
	check(err)
	defer log.Close()
	use(log)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	srv := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(srv, health.NewServer())
	go func() { check(srv.Serve(lis)) }()
	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	_, err = grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	check(err)
	check(conn.Close())
	srv.Stop()
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
