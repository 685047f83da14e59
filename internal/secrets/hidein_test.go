package secrets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
)

// The text of the error contains no secret. The error still wraps its cause, but errors.Unwrap does
// not return an error whose text contains the secret.
func TestHideInKeepsWrappedErrors(t *testing.T) {
	err := fmt.Errorf("login with s3cret-word: %w", &net.OpError{Op: "read", Err: io.EOF})
	got := HideIn(err, "***", "", "s3cret-word")
	var op *net.OpError
	if got.Error() != "login with ***: read: EOF" || !errors.Is(got, io.EOF) || !errors.As(got, &op) || errors.Unwrap(got) != nil {
		t.Errorf("%v, %v", got, errors.Unwrap(got))
	}
	if HideIn(err, "***", "other-secret") != err {
		t.Error("an error without a secret is another one now")
	}
}

// A secret that is a word is not hidden in a system error, because a gap in a well-known text would
// reveal it. It is hidden in a text that a server may have written.
func TestHideInWords(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{refused, "dial tcp: connection refused"},
		{fmt.Errorf("cannot connect: %w", refused), "cannot connect: dial tcp: connection refused"},
		{fmt.Errorf("refused: %w", context.DeadlineExceeded), "refused: context deadline exceeded"},
		{fmt.Errorf("%w: refused", context.DeadlineExceeded), "context deadline exceeded: *"},
		{fmt.Errorf("%w: refused", refused), "dial tcp: connection *: *"},
		{errors.New("token refused"), "token *"},
	} {
		if got := HideIn(tt.err, "*", "refused"); got.Error() != tt.want {
			t.Errorf("%v: %v, want %s", tt.err, got, tt.want)
		}
	}
}
