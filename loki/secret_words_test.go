package loki_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/loki"
)

// A password that is a part of words leaves no gap in them, which would tell it.
func TestPasswordThatIsAWord(t *testing.T) {
	for _, password := range []string{"p", "tcp", "connect", "refused"} {
		bubble.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var told []string
			l, err := forebay.New(loki.To("http://user:"+password+"@127.0.0.1:1", forebay.OnError(func(e batch.Event) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, e.String())
			})))
			if err != nil {
				t.Fatal(err)
			}
			l.Info("m")
			time.Sleep(time.Minute) // the circuit is open
			st := l.Router().Stats().Outputs[0]
			texts := []string{st.Delivery.Deliver.LastError, fmt.Sprint(l.Router().Flush(t.Context()))}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err = l.Router().Close(ctx)
			mu.Lock()
			defer mu.Unlock()
			texts = append(append(texts, err.Error()), told...)
			for _, text := range texts {
				if strings.Contains(text, "secret") || strings.Contains(text, "user:"+password) {
					t.Errorf("%q: %s", password, text)
				}
			}
			if all := strings.Join(texts, "\n"); strings.Count(all, "dial tcp 127.0.0.1:1: connect: connection refused") < 4 {
				t.Errorf("%q: the errors do not say what happened: %s", password, all)
			}
		})
	}
}
