package jetstream

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"
)

// If the context ends before or during newWire, Dial fails.
func TestDialAfterTheEndOfTheSessionFails(t *testing.T) {
	for range 1000 {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		w := newWire(ctx, time.Second)
		w.closeAll()
		if _, err := w.Dial("tcp", "127.0.0.1:1"); !errors.Is(err, context.Canceled) && !errors.Is(err, net.ErrClosed) {
			t.Fatal(err)
		}
	}
}
