package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// Limits for reading from a socket. Any program may listen on the socket.
const (
	maxState    = 4 << 20 // maximum number of bytes in an answer
	lookTimeout = 5 * time.Second
)

// Get requests the state of the program that listens on the socket at path. If the program has
// ended, [Ended] returns true for the error.
func Get(ctx context.Context, path string) (*State, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, requestError(ctx, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	// The request does not use http.Client, which logs unexpected answers.
	if _, err := io.WriteString(conn, "GET /state HTTP/1.1\r\nHost: forebay\r\nConnection: close\r\n\r\n"); err != nil {
		return nil, requestError(ctx, err)
	}
	left := &io.LimitedReader{R: conn, N: maxState}
	resp, err := http.ReadResponse(bufio.NewReader(left), nil)
	if err != nil {
		return nil, requestError(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answers %q", resp.Status)
	}
	body, err := io.ReadAll(resp.Body)
	switch {
	case left.N == 0:
		return nil, fmt.Errorf("its state is longer than %d bytes", maxState)
	case err != nil:
		return nil, requestError(ctx, err)
	}
	return decode(body)
}

// requestError prepares the error of a request for a message: it removes the address and describes
// a timeout.
func requestError(ctx context.Context, err error) error {
	var op *net.OpError
	switch {
	case ctx.Err() != nil:
		return errors.New("it does not answer")
	case errors.As(err, &op):
		return op.Err
	}
	return fmt.Errorf("not the control socket of a forebay: %.100q", err.Error())
}

// A Running is a running program with a control socket.
type Running struct {
	Path  string // path of the control socket
	State *State
}
