//go:build !unix

package control

import (
	"context"
	"errors"
	"net"
)

// Supported reports whether programs on this system have a control socket.
const Supported = false

var errUnsupported = errors.New("not available on this system")

// Listen returns an error, because this system has no directories to which only one user can write.
func Listen(string, string) (net.Listener, error) { return nil, errUnsupported }

// Find returns no programs, because no program on this system has a control socket.
func Find(context.Context) ([]Running, []error) { return nil, nil }

// Places returns the directories that Find searches: none.
func Places() []string { return nil }

// Ended reports whether an error of [Get] means that no process listens on the socket.
func Ended(error) bool { return false }
