package otlpgrpc

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/forebay-log/forebay/internal/httpsend"
)

// opDial is the Op of a net.OpError if no connection was made.
const opDial = "dial"

const method = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"

// A caller sends the requests of a Driver over gRPC, and converts the results to HTTP responses.
type caller struct{ conn *grpc.ClientConn }

// ours are HTTP headers that are not sent as metadata.
var ours = map[string]bool{"Content-Type": true, "Content-Encoding": true, "Content-Length": true, "User-Agent": true, "Idempotency-Key": true}

// RoundTrip makes one call.
func (t *caller) RoundTrip(r *http.Request) (*http.Response, error) {
	defer r.Body.Close()
	// gRPC may read a request after the call has returned, so it gets a copy.
	req := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, req); err != nil {
		return nil, err
	}
	md := metadata.MD{}
	for name, values := range r.Header {
		if !ours[name] {
			md.Append(name, values...)
		}
	}
	var res []byte
	var header, trailer metadata.MD
	t.conn.ResetConnectBackoff() // the outlet implements the delay
	err := t.conn.Invoke(metadata.NewOutgoingContext(r.Context(), md), method, req, &res, grpc.Header(&header), grpc.Trailer(&trailer))
	if err == nil {
		return answer(r, http.StatusOK, "application/x-protobuf", string(res)), nil
	}
	s := status.Convert(err)
	if m := ofHTTP.FindStringSubmatch(s.Message()); m != nil { // from a proxy without gRPC
		code, _ := strconv.Atoi(m[1])
		return answer(r, code, "text/plain", "no gRPC: "+s.Message()), nil // even a success status with such a text is an error
	}
	if strings.Contains(s.Message(), tooLarge) && strings.Contains(s.Message(), strconv.Itoa(maxAnswer)) {
		return nil, fmt.Errorf("the answer is larger than %d bytes", maxAnswer-1)
	}
	if nobody := len(header)+len(trailer) == 0; s.Code() == codes.DeadlineExceeded || s.Code() == codes.Canceled || nobody && s.Code() == codes.Unavailable {
		return nil, noAnswer(r, s)
	}
	a := answer(r, statusOf(s), "text/plain", s.Code().String()+": "+s.Message())
	if after := retryAfter(s); after > 0 {
		a.Header.Set("Retry-After", strconv.Itoa(int((after+time.Second-1)/time.Second)))
	}
	return a, nil
}

func answer(r *http.Request, status int, kind, text string) *http.Response {
	return &http.Response{
		StatusCode: status, Proto: "HTTP/2.0", ProtoMajor: 2, Header: http.Header{"Content-Type": {kind}},
		Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)), Request: r,
	}
}

// ofHTTP finds the status of an answer that is not one of gRPC.
var ofHTTP = regexp.MustCompile(`^unexpected HTTP status code received from server: (\d{3})\b`)

// tooLarge is part of gRPC's message about data above a limit, in either direction.
const tooLarge = "larger than max"

// maxAnswer is the maximum length of an answer in bytes. It is odd, so that gRPC's error for a
// longer answer differs from a receiver's error for a request.
const maxAnswer = 16<<20 + 1

// nothingSent are errors of gRPC before a request goes out.
var nothingSent = regexp.MustCompile(`Error while dialing|^name resolver error|error reading server preface|while waiting for connections to become ready`)

// noAnswer returns the error of a call that no server has answered, or only that it had no time.
func noAnswer(r *http.Request, s *status.Status) error {
	err := fmt.Errorf("%s: %s", s.Code(), s.Message())
	if ctx := r.Context().Err(); ctx != nil {
		err = fmt.Errorf("%w: %s", ctx, s.Message())
	}
	switch {
	case strings.Contains(s.Message(), "authentication handshake failed: ") && strings.Contains(s.Message(), "x509:"):
		return &tls.CertificateVerificationError{Err: err} // records are held after this error
	case strings.Contains(s.Message(), "authentication handshake failed: tls:"):
		return tls.RecordHeaderError{Msg: err.Error()} // also for this case
	case nothingSent.MatchString(s.Message()):
		return &net.OpError{Op: opDial, Err: err}
	}
	return err
}

// statusOf returns the status of HTTP that means the same.
func statusOf(s *status.Status) int {
	switch s.Code() {
	case codes.Unavailable, codes.Aborted, codes.OutOfRange, codes.DataLoss:
		return http.StatusServiceUnavailable
	case codes.ResourceExhausted:
		if strings.Contains(s.Message(), tooLarge) {
			return http.StatusRequestEntityTooLarge
		}
		return http.StatusTooManyRequests
	case codes.InvalidArgument:
		return http.StatusBadRequest
	case codes.Internal, codes.Unknown:
		return http.StatusInternalServerError
	case codes.Unauthenticated:
		return http.StatusUnauthorized
	case codes.PermissionDenied:
		return http.StatusForbidden
	}
	return http.StatusNotFound
}

// retryAfter returns how long the server wants to be left alone.
func retryAfter(s *status.Status) time.Duration {
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return min(max(info.GetRetryDelay().AsDuration(), 0), httpsend.MostAfter*time.Second)
		}
	}
	return 0
}

// codec passes messages unchanged: requests consist of encoded records.
type codec struct{}

func (codec) Name() string { return "proto" }

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("otlpgrpc: cannot send a %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("otlpgrpc: cannot read into a %T", v)
	}
	*b = data.Materialize()
	return nil
}
