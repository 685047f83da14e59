package console

import (
	"strings"
	"syscall"
)

// A remedy is advice for an error of the operating system.
type remedy struct {
	err  syscall.Errno
	text string
}

var (
	writeRemedies = []remedy{
		{syscall.EACCES, "let the user of this process write there, or give another path"},
		{syscall.EROFS, "give a path on a file system that can be written"},
		{syscall.ENOENT, "create its directory, or give another path"},
		{syscall.ENOTDIR, "a part of the path is a file: give another path"},
		{syscall.ENOSPC, "free some space there"},
		{syscall.ENAMETOOLONG, "give a shorter path"},
	}
	readRemedies = []remedy{
		{syscall.EACCES, "let the user of this process read it"},
		{syscall.EISDIR, "give the path of a file in it"},
		{syscall.ENOTDIR, "give a directory"},
	}
	listenRemedies = []remedy{
		{syscall.EADDRINUSE, "another program listens there: end it, or use another port"},
		{syscall.EACCES, "ports below 1024 need root or CAP_NET_BIND_SERVICE: use a higher port"},
		{syscall.EADDRNOTAVAIL, "this machine does not have the address: use 127.0.0.1 or 0.0.0.0"},
	}
)

// WriteRemedy appends advice to text, an error about a path that cannot be written. If text does
// not end in a known error of the operating system, WriteRemedy returns it unchanged.
func WriteRemedy(text string) string { return withRemedy(text, writeRemedies) }

// ReadRemedy is like WriteRemedy, for a path that cannot be read.
func ReadRemedy(text string) string { return withRemedy(text, readRemedies) }

// ListenRemedy is like WriteRemedy, for a port that cannot be opened.
func ListenRemedy(text string) string { return withRemedy(text, listenRemedies) }

func withRemedy(text string, remedies []remedy) string {
	for _, r := range remedies {
		if strings.HasSuffix(text, r.err.Error()) {
			return text + "; " + r.text
		}
	}
	return text
}
