package secrets

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

// The error says no secret, is still what it was, and leads nowhere.
func TestHideIn(t *testing.T) {
	err := fmt.Errorf("login with s3cret-word: %w", io.EOF)
	got := HideIn(err, "***", "", "s3cret-word")
	if got.Error() != "login with ***: EOF" || !errors.Is(got, io.EOF) || errors.Unwrap(got) != nil {
		t.Errorf("%v, %v", got, errors.Unwrap(got))
	}
	if HideIn(err, "***", "other-secret") != err {
		t.Error("an error without a secret is another one now")
	}
}
