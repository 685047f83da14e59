package secrets

import (
	"errors"
	"io/fs"
	"os"
	"strings"
)

// errSeveralLines is the cause of the error of ReadFile for a file that is probably not the intended
// one, or that has a comment or a second secret. Servers would refuse the text without a reason.
var errSeveralLines = errors.New("it has several lines; leave only the secret in it")

// ReadFile returns the secret in a file. It removes a byte order mark before the secret and
// newlines after it. If the file has several lines, ReadFile returns an error. All errors are of type
// *[fs.PathError].
func ReadFile(path string) (string, error) {
	b, err := os.ReadFile(path)
	secret := strings.TrimRight(strings.TrimPrefix(string(b), "\ufeff"), "\r\n")
	if err == nil && strings.ContainsAny(secret, "\r\n") {
		return "", &fs.PathError{Op: "read", Path: path, Err: errSeveralLines}
	}
	return secret, err
}
