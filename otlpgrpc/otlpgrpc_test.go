package otlpgrpc

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/internal/httpsend"
	"github.com/forebay-log/forebay/otlp"
	"github.com/forebay-log/forebay/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A peer is a receiver whose answers are computed by a function.
type peer struct {
	addr string
	srv  *grpc.Server

	mu     sync.Mutex
	got    [][]byte
	md     []metadata.MD
	answer func(n int, req []byte) ([]byte, error)
}

// serve handles one call: it stores the request and its metadata, and sends the answer.
func (p *peer) serve(_ any, s grpc.ServerStream) error {
	var req []byte
	if err := s.RecvMsg(&req); err != nil {
		return err
	}
	if name, _ := grpc.MethodFromServerStream(s); name != method {
		return status.Error(codes.Unimplemented, name)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	md, _ := metadata.FromIncomingContext(s.Context())
	p.got, p.md = append(p.got, req), append(p.md, md)
	res := []byte{}
	if p.answer != nil {
		var err error
		if res, err = p.answer(len(p.got)-1, req); err != nil {
			return err
		}
	}
	return s.SendMsg(res)
}

// startPeer starts p on a free port and stops it at the end of the test.
func startPeer(t *testing.T, p *peer, opts ...grpc.ServerOption) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.addr = l.Addr().String()
	p.serveOn(t, l, opts...)
}

// serveOn serves the connections of l until the end of the test.
func (p *peer) serveOn(t *testing.T, l net.Listener, opts ...grpc.ServerOption) {
	p.srv = grpc.NewServer(append(opts, grpc.WaitForHandlers(true), grpc.ForceServerCodecV2(codec{}), grpc.UnknownServiceHandler(p.serve))...)
	served := make(chan struct{})
	go func() {
		defer close(served)
		p.srv.Serve(l)
	}()
	srv := p.srv
	t.Cleanup(func() {
		srv.Stop()
		<-served
	})
}

// loggerFor returns a logger with one output that sends to p.
func loggerFor(t *testing.T, p *peer, opts ...forebay.OutputOption) *forebay.Logger {
	t.Helper()
	log, err := forebay.New(To("http://"+p.addr, opts...))
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// fastRetries sets short delays between attempts and a long time for Close.
func fastRetries(o *deliver.OutputOptions) {
	o.Deliver.Retry = &deliver.RetryOptions{Min: time.Millisecond, Max: 5 * time.Millisecond}
	o.OnError = func(batch.Event) {}
	o.CloseTimeout = time.Minute
}

// A call has the request as its message, and the headers as metadata, with and without compression.
func TestCallHasRequestAndMetadata(t *testing.T) {
	for _, compression := range []string{"gzip", "none"} {
		p := new(peer)
		startPeer(t, p)
		log := loggerFor(t, p, otlp.Resource("service.name", "shop"), forebay.Configure(func(c *otlp.Config) {
			c.Compression, c.HTTP.BearerToken, c.HTTP.Headers = compression, "t0ken", map[string]string{"X-Key": "yes"}
		}))
		log.Info("hello", slog.String("text", strings.Repeat("x", 10_000)))
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		if len(p.got) != 1 || !bytes.Contains(p.got[0], []byte("hello")) || !bytes.Contains(p.got[0], []byte("shop")) {
			t.Fatalf("%q", p.got)
		}
		md := p.md[0]
		if fmt.Sprint(md["authorization"], md["x-key"], md["content-type"]) != "[Bearer t0ken] [yes] [application/grpc+proto]" || !strings.HasPrefix(md["user-agent"][0], "forebay") {
			t.Errorf("metadata %v", md)
		}
	}
}

// grpcError returns the error of a call with the given code, and with a RetryInfo if after is
// positive.
func grpcError(code codes.Code, message string, after time.Duration) error {
	s := status.New(code, message)
	if after > 0 {
		s, _ = s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(after)})
	}
	return s.Err()
}

// The outcome of a request with two records is the documented outcome for the answer.
func TestStatusesHaveDocumentedOutcomes(t *testing.T) {
	type want struct {
		open, refused int
		advice        batch.Advice
		after         time.Duration
		text          string
		unnamed       int
	}
	for _, tc := range []struct {
		res  string
		err  error
		want want
	}{
		{"", nil, want{}},
		{"\x0a\x06\x08\x02\x12\x02no", nil, want{refused: 2, text: "no"}},
		{"ok", nil, want{open: 2, advice: batch.Hold, text: "200 OK: the answer is not from an OTLP receiver"}},
		{"\x0a\x06\x08\x01\x12\x02no", nil, want{unnamed: 1, text: "1 of 2 records refused without naming them: no"}},
		{"", grpcError(codes.Unavailable, "queue full", 1500*time.Millisecond), want{open: 2, after: 2 * time.Second, text: "Unavailable: queue full"}},
		{"", grpcError(codes.Unavailable, "soon", 0), want{open: 2, text: "503 Service Unavailable: Unavailable: soon"}},
		{"", grpcError(codes.Unavailable, "never", 1<<20*time.Second), want{open: 2, after: 1 << 20 * time.Second, text: "never"}},
		{"", grpcError(codes.Unavailable, "never", 1<<63-1), want{open: 2, after: (1<<31 - 1) * time.Second, text: "never"}},
		{"", grpcError(codes.ResourceExhausted, "quota", 3*time.Second), want{open: 2, after: 3 * time.Second, text: "429"}},
		{"", grpcError(codes.ResourceExhausted, "grpc: received message larger than max (5000000 vs. 4194304)", 0), want{open: 2, advice: batch.Smaller, text: "larger than max"}},
		{"", grpcError(codes.DeadlineExceeded, "late", 0), want{open: 2, text: "DeadlineExceeded: late"}},
		{"", grpcError(codes.Aborted, "a", 0), want{open: 2, text: "Aborted"}},
		{"", grpcError(codes.OutOfRange, "a", 0), want{open: 2, text: "OutOfRange"}},
		{"", grpcError(codes.DataLoss, "a", 0), want{open: 2, text: "DataLoss"}},
		{"", grpcError(codes.Canceled, "a", 0), want{open: 2, text: "Canceled"}},
		{"", grpcError(codes.Internal, "a", 0), want{open: 2, advice: batch.ServerError, text: "Internal"}},
		{"", grpcError(codes.Unknown, "a", 0), want{open: 2, advice: batch.ServerError, text: "Unknown"}},
		{"", grpcError(codes.InvalidArgument, "bad record", 0), want{open: 2, advice: batch.Search, text: "400 Bad Request: InvalidArgument: bad record"}},
		{"", grpcError(codes.Unauthenticated, "token swordfish", 0), want{open: 2, advice: batch.Hold, text: "token [secret]"}},
		{"", grpcError(codes.DeadlineExceeded, "swordfish", 0), want{open: 2, text: "DeadlineExceeded: [secret]"}},
		{"", grpcError(codes.PermissionDenied, "no", 0), want{open: 2, advice: batch.Hold, text: "403"}},
		{"", grpcError(codes.Unimplemented, "unknown service", 0), want{open: 2, advice: batch.Hold, text: "Unimplemented: unknown service"}},
		{"", grpcError(codes.FailedPrecondition, "no", 0), want{open: 2, advice: batch.Hold, text: "FailedPrecondition"}},
	} {
		t.Run(fmt.Sprint(tc.res, tc.err), func(t *testing.T) {
			p := &peer{answer: func(_ int, req []byte) ([]byte, error) {
				if len(req) == 0 { // a request without records, which probes the receiver
					return nil, nil
				}
				return []byte(tc.res), tc.err
			}}
			startPeer(t, p)
			o := sendTwo(t, otlp.Config{URL: "http://" + p.addr, HTTP: httpclient.Options{BearerToken: "swordfish"}})
			text := ""
			if o.Err() != nil {
				text = o.Err().Error()
			}
			got := want{o.Open.Len(2), o.Refused.Len(2), o.Advice, o.After, text, o.Unnamed}
			if strings.Contains(text, tc.want.text) && tc.want.text != "" {
				got.text = tc.want.text
			}
			if got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
			if c := status.Code(tc.err); errors.Is(o.Why, batch.ErrUnanswered) != (c == codes.DeadlineExceeded || c == codes.Canceled) {
				t.Errorf("is it ErrUnanswered? %v", o.Why)
			}
		})
	}
}

// A session is a deliver.Life that passes one answer to a channel.
type session struct {
	ctx context.Context
	o   chan batch.Outcome
}

func (l session) Context() context.Context               { return l.ctx }
func (l session) Answer(_ *batch.Batch, o batch.Outcome) { l.o <- o }
func (l session) End(error)                              {}

// sendTwo sends two records and returns their outcome.
func sendTwo(t *testing.T, c otlp.Config) batch.Outcome {
	t.Helper()
	d, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close(context.Background())
	b := batch.Batch{Codec: d.Encoder().Codec()}
	for _, line := range []string{"one", "two"} {
		rec, m, err := d.AppendLine(nil, time.Unix(1, 0), slog.LevelInfo, []byte(line), nil)
		if err != nil {
			t.Fatal(err)
		}
		b.Append(rec, 0, m)
	}
	l := session{t.Context(), make(chan batch.Outcome, 1)}
	s, err := d.Open(l)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Send(&b); err != nil {
		t.Fatal(err)
	}
	return <-l.o
}

// If a server does not speak gRPC, hangs, or closes the connection, the records stay undelivered.
func TestMissingResponseLeavesRecordsOpen(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	o := sendTwo(t, otlp.Config{URL: "http://" + l.Addr().String()})
	if o.Open.Len(2) != 2 || o.Advice != batch.Again || errors.Is(o.Why, batch.ErrUnanswered) || !strings.Contains(o.Why.Error(), "refused") {
		t.Errorf("no server: %+v", o)
	}

	release := make(chan struct{})
	p := &peer{answer: func(int, []byte) ([]byte, error) {
		<-release
		return nil, nil
	}}
	startPeer(t, p)
	o = sendTwo(t, otlp.Config{URL: "http://" + p.addr, HTTP: httpclient.Options{Timeout: 100 * time.Millisecond}})
	if o.Open.Len(2) != 2 || o.Advice != batch.Again || !errors.Is(o.Why, batch.ErrUnanswered) {
		t.Errorf("no response: %+v", o)
	}
	close(release)

	p = new(peer)
	if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	cutter := &cuttingListener{Listener: l}
	p.answer = func(int, []byte) ([]byte, error) {
		cutter.cut()
		return nil, nil
	}
	p.addr = l.Addr().String()
	p.serveOn(t, cutter)
	if o = sendTwo(t, otlp.Config{URL: "http://" + p.addr}); o.Open.Len(2) != 2 || o.Advice != batch.Again || !errors.Is(o.Why, batch.ErrUnanswered) {
		t.Errorf("closed connection: %+v", o)
	}
}

// A cuttingListener can close its connections.
type cuttingListener struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func (l *cuttingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.conns = append(l.conns, c)
	}
	return c, err
}

// cut closes all connections.
func (l *cuttingListener) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.Close()
	}
}

// The certificate of the server is checked against the authorities of the configuration. If it is
// not trusted, records are held.
func TestTLSAuthorities(t *testing.T) {
	web := httptest.NewUnstartedServer(nil) // provides a certificate
	web.StartTLS()
	cert := web.TLS.Certificates[0]
	web.Close()
	p := new(peer)
	startPeer(t, p, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}})))
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), 0o600); err != nil {
		t.Fatal(err)
	}
	c := otlp.Config{URL: "https://" + p.addr, HTTP: httpclient.Options{TLS: transport.TLS{CAFile: ca, ServerName: "example.com"}}}
	if o := sendTwo(t, c); o.Err() != nil {
		t.Error(o.Err())
	}
	c.HTTP.TLS = transport.TLS{}
	if o := sendTwo(t, c); o.Advice != batch.Hold || o.Open.Len(2) != 2 || !strings.Contains(o.Why.Error(), "x509") {
		t.Errorf("%+v", o)
	}
}

// With UnixSocket, the host of the URL is only the authority of the calls, and the connection uses
// the socket.
func TestUnixSocketIsUsed(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	p := new(peer)
	p.serveOn(t, l)
	if o := sendTwo(t, otlp.Config{URL: "http://name.test", HTTP: httpclient.Options{UnixSocket: socket}}); o.Err() != nil {
		t.Error(o.Err())
	}
	if got := p.md[0][":authority"]; len(got) != 1 || got[0] != "name.test" {
		t.Errorf("authority %v", got)
	}
}

// A receiver fails sometimes, refuses one record, and is down for a while. All other records arrive
// in order.
func TestOutageLosesNothing(t *testing.T) {
	p := new(peer)
	var stored []byte
	p.answer = func(n int, req []byte) ([]byte, error) {
		switch {
		case n%3 == 1:
			return nil, status.Error(codes.Unavailable, "busy")
		case bytes.Contains(req, []byte("<500>")):
			return nil, status.Error(codes.InvalidArgument, "bad record")
		}
		stored = append(stored, req...)
		return nil, nil
	}
	startPeer(t, p)
	deadLetters := filepath.Join(t.TempDir(), "deadLetters")
	log := loggerFor(t, p, forebay.Configure(func(c *otlp.Config) { c.BatchRecords = 50 }), forebay.Delivery(fastRetries),
		forebay.Delivery(func(o *deliver.OutputOptions) { o.DeadLetterFile = deadLetters }))
	for i := range 1000 {
		if i == 600 {
			p.srv.Stop()
		}
		log.Info(fmt.Sprintf("<%d>", i))
	}
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	p.serveOn(t, l)
	if err := log.Close(); err != nil {
		t.Error(err)
	}
	last, n := -1, 0
	for _, m := range regexp.MustCompile(`<(\d+)>`).FindAllSubmatch(stored, -1) {
		i, _ := strconv.Atoi(string(m[1]))
		if i > last+1 && i != 501 || i == 500 {
			t.Fatalf("%d after %d", i, last)
		}
		if i > last {
			n++
		}
		last = max(last, i)
	}
	if n != 999 {
		t.Errorf("%d records arrived, want 999", n)
	}
	if js, _ := os.ReadFile(deadLetters); strings.Count(string(js), "\n") != 1 || !strings.Contains(string(js), "<500>") || !strings.Contains(string(js), "InvalidArgument: bad record") {
		t.Errorf("dead letters: %s", js)
	}
}

// New returns an error for a configuration that gRPC cannot use.
func TestConfigErrors(t *testing.T) {
	for want, opts := range map[string][]forebay.OutputOption{
		"config: client is for HTTP": {forebay.Configure(func(c *otlp.Config) { c.HTTP.Client = http.DefaultClient })},
		"gRPC has no path":           {forebay.Configure(func(c *otlp.Config) { c.URL = "http://h:1/v1/logs" })},
		`its scheme is "grpc"`:       {forebay.Configure(func(c *otlp.Config) { c.URL = "grpc://h:1" })},
		"cannot read tls.ca_file":    {forebay.Configure(func(c *otlp.Config) { c.URL, c.HTTP.TLS.CAFile = "https://h:1", "none" })},
	} {
		if _, err := forebay.New(To("http://h:1", opts...)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// If a call fails before a connection exists, nothing was sent. After any other call without a
// response, the records may have been accepted.
func TestFailedDialSentNothing(t *testing.T) {
	req := httptest.NewRequest(http.MethodPost, "http://h:4317/v1/logs", nil)
	for message, want := range map[string]httpsend.SendState{
		`connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`:                                            httpsend.NotSent,
		"name resolver error: produced zero addresses":                                                                                                            httpsend.NotSent,
		`connection error: desc = "error reading server preface: http2: frame too large"`:                                                                         httpsend.NotSent,
		"context deadline exceeded while waiting for connections to become ready":                                                                                 httpsend.NotSent,
		`connection error: desc = "transport: authentication handshake failed: tls: first record does not look like a TLS handshake"`:                             httpsend.NotSecure,
		`connection error: desc = "transport: authentication handshake failed: tls: failed to verify certificate: x509: certificate signed by unknown authority"`: httpsend.NotSecure,
		"error reading from server: EOF": httpsend.Unknown,
		`connection error: desc = "transport: authentication handshake failed: tls: no, thanks"`: httpsend.NotSecure,
	} {
		if got := httpsend.StateAfter(noAnswer(req, status.New(codes.Unavailable, message))); got != want {
			t.Errorf("%s: %v, want %v", message, got, want)
		}
	}
}

// If a proxy refuses a call, its HTTP status has the same meaning as in package otlp.
func TestHTTPStatusOfProxyIsInterpreted(t *testing.T) {
	for code, want := range map[int]batch.Advice{
		http.StatusRequestEntityTooLarge: batch.Smaller, http.StatusTooManyRequests: batch.Again, http.StatusServiceUnavailable: batch.Again,
		http.StatusForbidden: batch.Hold, http.StatusInternalServerError: batch.ServerError,
		http.StatusOK: batch.Hold, http.StatusAccepted: batch.Hold, http.StatusNoContent: batch.Hold,
	} {
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(code)
			io.WriteString(w, "<html>not now</html>")
		}))
		srv.Config.Protocols = protocols
		srv.Start()
		o := sendTwo(t, otlp.Config{URL: srv.URL})
		srv.Close()
		if o.Open.Len(2) != 2 || o.Advice != want || !strings.Contains(fmt.Sprint(o.Why), "server answered "+strconv.Itoa(code)) || errors.Is(o.Why, batch.ErrUnanswered) {
			t.Errorf("%d: %+v", code, o)
		}
	}
}

// A response within the limit is interpreted. After a longer response, the records may have been
// accepted. In neither case are the records refused.
func TestLongResponseIsUnknown(t *testing.T) {
	long := func(n int) []byte { // partial_success: error_message
		text := bytes.Repeat([]byte("x"), n)
		msg := append(binary.AppendUvarint([]byte{0x12}, uint64(n)), text...)
		return append(binary.AppendUvarint([]byte{0x0a}, uint64(len(msg))), msg...)
	}
	for n, accepted := range map[int]bool{5 << 20: true, 17 << 20: false} {
		p := &peer{answer: func(int, []byte) ([]byte, error) { return long(n), nil }}
		startPeer(t, p)
		o := sendTwo(t, otlp.Config{URL: "http://" + p.addr})
		if o.Advice != batch.Again || o.Refused.Len(2) != 0 || o.Unnamed != 0 || o.Open.Empty() != accepted || !accepted && !errors.Is(o.Why, batch.ErrUnanswered) {
			t.Errorf("%d bytes: %s, %d open, %d refused, %d unnamed: %.300v", n, o.Advice, o.Open.Len(2), o.Refused.Len(2), o.Unnamed, o.Why)
		}
	}
}

// A dry run writes gRPC calls instead of HTTP requests.
func TestDryRunShowsCalls(t *testing.T) {
	var out bytes.Buffer
	log, err := forebay.New(To("http://collector:4317", forebay.Configure(func(c *otlp.Config) { c.DryRun = &out })))
	if err != nil {
		t.Fatal(err)
	}
	log.Info("/v1/logs")
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.HasPrefix(got, "Export to collector:4317: 1 record, ") || !strings.Contains(got, `"body":"/v1/logs"`) {
		t.Errorf("%s", got)
	}
}
