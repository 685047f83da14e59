package otlpgrpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/tlsfiles"
	"github.com/forebay-log/forebay/otlp"
)

// To returns an output for forebay.New that sends to the OTLP receiver at url over gRPC:
// "http://localhost:4317", without TLS, or "https://collector:4317". The options of all outputs are
// in package forebay. otlp.Resource is also an option of this output. forebay.Configure sets fields
// of an otlp.Config, except HTTP.Client, which must be nil. Headers are sent as metadata. WireBytes
// of otlp.Stats counts bytes before compression.
func To(url string, opts ...forebay.OutputOption) forebay.OutputSpec {
	return forebay.Driver("otlpgrpc.To", otlp.Config{URL: url}, open, opts...)
}

// A Driver is an [otlp.Driver] that sends over gRPC on a separate connection.
type Driver struct {
	*otlp.Driver
	conn *grpc.ClientConn
}

// New returns a Driver. Pass it to forebay.To, which adds memory and delivery. [To] makes the
// Driver and the output in one call. c.HTTP.Client must be nil. New does not connect; the first
// request does. The error lists all invalid fields of c.
func New(c otlp.Config) (*Driver, error) {
	if c.HTTP.Client != nil {
		return nil, errors.New("otlpgrpc: config: client is for HTTP; leave it out")
	}
	zip := c.Compression == "" || c.Compression == "gzip"
	if zip {
		c.Compression = "none" // gRPC compresses requests itself
	}
	if c.DryRun != nil {
		c.DryRun = dryRun{c.DryRun}
	}
	t := new(caller)
	c.HTTP.Client = &http.Client{Transport: t}
	x, err := otlp.New(c)
	if err == nil {
		t.conn, err = dial(&c, zip)
	}
	if err != nil {
		return nil, err
	}
	return &Driver{x, t.conn}, nil
}

// A dryRun converts the dry-run output of an otlp.Driver, which contains HTTP requests, to gRPC
// calls.
type dryRun struct{ w io.Writer }

// Write converts p, one request with its records, and writes the result to w.
func (d dryRun) Write(p []byte) (int, error) {
	if line, rest, ok := bytes.Cut(p, []byte("/v1/logs")); ok {
		if _, host, ok := bytes.Cut(line, []byte("://")); ok {
			if _, err := d.w.Write(slices.Concat([]byte("Export to "), host, rest)); err != nil {
				return 0, err
			}
			return len(p), nil
		}
	}
	return d.w.Write(p)
}

// Close ends the connection. Later requests fail.
func (x *Driver) Close(context.Context) error { return x.conn.Close() }

// open creates the Driver for an output made with [To]. It returns an error for the option
// forebay.Encoder, because the driver writes only OTLP.
func open(c *otlp.Config, s *forebay.Setup) (deliver.Destination, error) {
	if s.Encoder != nil {
		return nil, errors.New("it writes only OTLP; leave the encoder out")
	}
	return New(*c)
}

// dial returns a client for the server in c. If zip is set, requests are compressed with gzip. The
// first call makes the connection.
func dial(c *otlp.Config, zip bool) (*grpc.ClientConn, error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, errors.New("otlpgrpc: config: url: it cannot be read")
	}
	if strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return nil, errors.New("otlpgrpc: config: url: gRPC has no path and no query; use http://host:4317 or https://host:4317")
	}
	calls := []grpc.CallOption{grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(maxAnswer)}
	if zip {
		calls = append(calls, grpc.UseCompressor(gzip.Name))
	}
	opts := []grpc.DialOption{
		grpc.WithDefaultCallOptions(calls...), grpc.WithUserAgent("forebay"), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	}
	if u.Scheme == "https" {
		made, err := tlsfiles.ClientConfig(c.HTTP.TLS)
		if err != nil {
			return nil, fmt.Errorf("otlpgrpc: %w", err)
		}
		opts = append(opts, grpc.WithTransportCredentials(credentials.NewTLS(made)))
	}
	target := "dns:///" + u.Host
	if u.Port() == "" {
		target += map[string]string{"http": ":80", "https": ":443"}[u.Scheme]
	}
	if c.HTTP.UnixSocket != "" {
		target = "unix:" + c.HTTP.UnixSocket
		opts = append(opts, grpc.WithAuthority(u.Host))
	}
	if c.HTTP.NoProxy || c.HTTP.UnixSocket != "" {
		opts = append(opts, grpc.WithNoProxy())
	}
	conn, err := grpc.NewClient(target, opts...)
	if err != nil {
		return nil, fmt.Errorf("otlpgrpc: cannot make a client: %w", err)
	}
	return conn, nil
}
