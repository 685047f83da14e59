package neterr

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
)

func TestCause(t *testing.T) {
	addr := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
	refused := &net.OpError{Op: "dial", Net: "tcp", Addr: addr, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	alert := &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}
	other := errors.New("other")
	for _, test := range []struct {
		err  error
		want string
	}{
		{refused, syscall.ECONNREFUSED.Error()},
		{&net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "h"}}, "lookup h: no such host"},
		{alert, "remote error: tls: bad certificate"},
		{other, "other"},
	} {
		if got := Cause(test.err); got.Error() != test.want || !errors.Is(got, test.err) {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
	if err := Cause(refused); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v does not wrap the error of the system", err)
	}
	if Cause(nil) != nil {
		t.Error("Cause(nil) is not nil")
	}
}
