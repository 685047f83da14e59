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

// opDial is the Op of the net.OpError that noAnswer returns if there was no connection. By this Op,
// package httpsend recognizes that the request was not sent.
const opDial = "dial"

// method is the full name of the gRPC method, from the protocol file of
// opentelemetry/proto/collector/logs/v1.
const method = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"

// A caller is the [http.RoundTripper] of an otlp.Driver. It sends the requests over gRPC and
// converts the results to HTTP responses, which package otlp interprets.
type caller struct{ conn *grpc.ClientConn }

// headersOfGRPC contains the HTTP headers that gRPC sets itself. They are not sent as metadata.
var headersOfGRPC = map[string]bool{"Content-Type": true, "Content-Encoding": true, "Content-Length": true, "User-Agent": true, "Idempotency-Key": true}

// RoundTrip makes one call. If no server answers the call, RoundTrip returns an error, like an HTTP
// transport.
func (t *caller) RoundTrip(r *http.Request) (*http.Response, error) {
	defer r.Body.Close()
	// gRPC may read a request after the call has returned, so it gets a copy.
	req := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, req); err != nil {
		return nil, err
	}
	md := metadata.MD{}
	for name, values := range r.Header {
		if !headersOfGRPC[name] {
			md.Append(name, values...)
		}
	}
	var res []byte
	var header, trailer metadata.MD
	// The outlet delays the next attempt. gRPC would add a delay of its own without this call.
	t.conn.ResetConnectBackoff()
	err := t.conn.Invoke(metadata.NewOutgoingContext(r.Context(), md), method, req, &res, grpc.Header(&header), grpc.Trailer(&trailer))
	if err == nil {
		return answer(r, http.StatusOK, "application/x-protobuf", string(res)), nil
	}
	s := status.Convert(err)
	// A proxy that does not support gRPC answers with an HTTP status.
	if m := ofHTTP.FindStringSubmatch(s.Message()); m != nil {
		code, _ := strconv.Atoi(m[1])
		// Package otlp accepts an empty answer with a success status. With this text it reports an
		// error.
		return answer(r, code, "text/plain", "no gRPC: "+s.Message()), nil
	}
	if strings.Contains(s.Message(), tooLarge) && strings.Contains(s.Message(), strconv.Itoa(maxAnswer)) {
		return nil, fmt.Errorf("the answer is larger than %d bytes", maxAnswer-1)
	}
	if noServer := len(header)+len(trailer) == 0; s.Code() == codes.DeadlineExceeded || s.Code() == codes.Canceled || noServer && s.Code() == codes.Unavailable {
		return nil, noAnswer(r, s)
	}
	a := answer(r, statusOf(s), "text/plain", s.Code().String()+": "+s.Message())
	if after := retryAfter(s); after > 0 {
		a.Header.Set("Retry-After", strconv.Itoa(int((after+time.Second-1)/time.Second)))
	}
	return a, nil
}

// answer returns an HTTP response to r. kind is its content type, and text its body.
func answer(r *http.Request, status int, kind, text string) *http.Response {
	return &http.Response{
		StatusCode: status, Proto: "HTTP/2.0", ProtoMajor: 2, Header: http.Header{"Content-Type": {kind}},
		Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)), Request: r,
	}
}

// ofHTTP finds the HTTP status in gRPC's error for a response that is not gRPC.
var ofHTTP = regexp.MustCompile(`^unexpected HTTP status code received from server: (\d{3})\b`)

// tooLarge is part of gRPC's error for a request or an answer that exceeds a size limit.
const tooLarge = "larger than max"

// maxAnswer is the maximum length of an answer in bytes. It is odd, so that gRPC's error for a
// longer answer differs from a receiver's error for a long request.
const maxAnswer = 16<<20 + 1

// nothingSent matches gRPC's errors for requests that were not sent.
var nothingSent = regexp.MustCompile(`Error while dialing|^name resolver error|error reading server preface|while waiting for connections to become ready`)

// noAnswer returns the error for a call that no server has answered or that has timed out. From the
// type of the error, package httpsend determines whether the request may have been accepted.
func noAnswer(r *http.Request, s *status.Status) error {
	err := fmt.Errorf("%s: %s", s.Code(), s.Message())
	if ctx := r.Context().Err(); ctx != nil {
		err = fmt.Errorf("%w: %s", ctx, s.Message())
	}
	switch {
	case strings.Contains(s.Message(), "authentication handshake failed: ") && strings.Contains(s.Message(), "x509:"):
		// Package httpsend holds the records after this error.
		return &tls.CertificateVerificationError{Err: err}
	case strings.Contains(s.Message(), "authentication handshake failed: tls:"):
		// Package httpsend also holds the records after this error.
		return tls.RecordHeaderError{Msg: err.Error()}
	case nothingSent.MatchString(s.Message()):
		return &net.OpError{Op: opDial, Err: err}
	}
	return err
}

// statusOf returns the HTTP status with the meaning of s. It follows the classification of codes in
// the OTLP/gRPC specification.
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

// retryAfter returns the delay that the server requests with a google.rpc.RetryInfo, or 0.
func retryAfter(s *status.Status) time.Duration {
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return min(max(info.GetRetryDelay().AsDuration(), 0), httpsend.MaxRetryAfter*time.Second)
		}
	}
	return 0
}

// A codec is a gRPC codec that passes messages unchanged, because requests are built from encoded
// records.
type codec struct{}

// Name returns the content subtype of protobuf messages.
func (codec) Name() string { return "proto" }

// Marshal returns the bytes of v, a []byte.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("otlpgrpc: cannot send a %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

// Unmarshal stores a copy of data in v, a *[]byte.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("otlpgrpc: cannot read into a %T", v)
	}
	*b = data.Materialize()
	return nil
}
