package examples

import (
	"context"
	"log/slog"
	"net"
	"testing"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/forebaytest"
)

// calls returns a logger for the interceptors of go-grpc-middleware, which log each call with its
// context.
func calls(log *forebay.Logger) logging.Logger {
	return logging.LoggerFunc(func(ctx context.Context, level logging.Level, msg string, fields ...any) {
		log.Slog().Log(ctx, slog.Level(level), msg, fields...)
	})
}

func newServer(log *forebay.Logger) *grpc.Server {
	return grpc.NewServer(
		grpc.ChainUnaryInterceptor(logging.UnaryServerInterceptor(calls(log))),
		grpc.ChainStreamInterceptor(logging.StreamServerInterceptor(calls(log))),
	)
}

func TestGRPCLogsCalls(t *testing.T) {
	rec := forebaytest.New(t)
	tenant := func(ctx context.Context, dst []slog.Attr) []slog.Attr {
		for _, v := range metadata.ValueFromIncomingContext(ctx, "tenant") {
			dst = append(dst, slog.String("tenant", v))
		}
		return dst
	}
	log, err := forebay.New(forebay.Writer(rec, forebay.Level(slog.LevelDebug)), forebay.Context(tenant))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := newServer(log)
	grpc_health_v1.RegisterHealthServer(srv, health.NewServer())
	served := make(chan error, 1)
	go func() { served <- srv.Serve(lis) }()
	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	client := grpc_health_v1.NewHealthClient(conn)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "tenant", "acme")
	if _, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
	if _, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "none"}); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
	rec.Wait(timeout, slog.LevelInfo, "finished call", "grpc.service", "grpc.health.v1.Health", "grpc.method", "Check", "grpc.code", "OK", "tenant", "acme")
	rec.Wait(timeout, slog.LevelInfo, "finished call", "grpc.code", "NotFound")
	conn.Close()
	srv.Stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
