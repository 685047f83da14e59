package secrets

import (
	"os"
	"strings"
)

// ReadFile returns the secret in a file. It removes a byte order mark before the secret and
// newlines after it.
func ReadFile(path string) (string, error) {
	b, err := os.ReadFile(path)
	return strings.TrimRight(strings.TrimPrefix(string(b), "\ufeff"), "\r\n"), err
}
