// Package neterr shortens errors of package net.
package neterr

import (
	"net"
	"net/url"
	"os"
)

// Cause returns err for a message that already contains the operation and the address: the text of
// a [net.OpError] becomes that of its cause, such as "connection refused". The result wraps err. An
// alert of TLS ("remote error", "local error") and all other errors are returned unchanged. Of a
// [url.Error] only the cause is used.
func Cause(err error) error {
	if request, ok := err.(*url.Error); ok {
		err = request.Err
	}
	if op, ok := err.(*net.OpError); ok && op.Op != "remote error" && op.Op != "local error" {
		return cause{op}
	}
	return err
}

// A cause has the text of the cause of its error.
type cause struct{ op *net.OpError }

func (c cause) Error() string {
	if sys, ok := c.op.Err.(*os.SyscallError); ok {
		return sys.Err.Error()
	}
	return c.op.Err.Error()
}

func (c cause) Unwrap() error { return c.op }
