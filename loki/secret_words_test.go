package loki_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/loki"
)

// If a server sends a secret back, the secret is replaced everywhere in the server's text, even if
// it is short or a common word.
func TestCredentialsInResponsesAreHidden(t *testing.T) {
	seed := testkit.Seed(t)
	for i, secret := range []string{"X", "ab1", "token", "swordfish", "Pa-55.w0rd", "s3cr3t-value-of-some-length"} {
		for name, c := range map[string]loki.Config{
			"password": {HTTP: httpclient.Options{Username: "user", Password: secret}}, "token": {HTTP: httpclient.Options{BearerToken: secret}},
			"header": {HTTP: httpclient.Options{Headers: map[string]string{"Authorization": "Bearer " + secret}}}, "URL": {URL: "http://user:" + secret + "@loki.test"},
		} {
			for j, text := range []string{"bad token Bearer %s", "refused [%s]", "%s", "key=%s&x=1", "\"%s\": no", "a" + strings.Repeat(" b", 508) + " %s"} {
				for k, status := range []int{400, 401, 413, 429, 500} {
					if !testkit.Share(seed, i+j+k, 3) {
						continue
					}
					if c.URL == "" {
						c.URL = "http://loki.test"
					}
					c.Labels = map[string]string{"app": "a"}
					c.HTTP.Client = &http.Client{Transport: answers(func(r *http.Request) *http.Response {
						return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(fmt.Sprintf(text, secret)))}
					})}
					p, err := loki.New(c)
					if err != nil {
						t.Fatal(err)
					}
					b := batch.Batch{Codec: p.Encoder().Codec()}
					rec, m, err := p.AppendLine(nil, time.Now(), 0, []byte("line"), nil)
					if err != nil {
						t.Fatal(err)
					}
					b.Append(rec, 0, m)
					ses, _ := p.Open(ignoredLife{t.Context()})
					_ = ses.Send(&b)
					ses.Close()
					said := strings.TrimPrefix(p.Stats().LastError, fmt.Sprintf("loki: server answered %d %s", status, http.StatusText(status)))
					said = strings.NewReplacer("Bearer", "", "[secret]", "", `(stream {app="a", level="info"})`, "", "bad token", "").Replace(said)
					if strings.Contains(said, secret) || p.Stats().LastError == "" {
						t.Errorf("%s %s: %.80q", name, secret, p.Stats().LastError)
					}
				}
			}
		}
	}
}

type answers func(*http.Request) *http.Response

func (f answers) RoundTrip(r *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, r.Body)
	r.Body.Close()
	return f(r), nil
}

// An ignoredLife is a [deliver.Life] that ignores the reported outcomes.
type ignoredLife struct{ ctx context.Context }

func (l ignoredLife) Context() context.Context           { return l.ctx }
func (l ignoredLife) Answer(*batch.Batch, batch.Outcome) {}
func (l ignoredLife) End(error)                          {}

// If a password equals a word of the client's own error text, that word is not replaced. A gap in a
// known text would reveal the password.
func TestPasswordEqualToWordIsNotRevealed(t *testing.T) {
	for _, password := range []string{"p", "tcp", "connect", "refused"} {
		bubble.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var eventLog []string
			l, err := forebay.New(loki.To("http://user:"+password+"@127.0.0.1:1", forebay.OnError(func(e batch.Event) {
				mu.Lock()
				defer mu.Unlock()
				eventLog = append(eventLog, e.String())
			})))
			if err != nil {
				t.Fatal(err)
			}
			l.Info("m")
			time.Sleep(time.Minute) // long enough for the circuit breaker to open
			st := l.Router().Stats().Outputs[0]
			texts := []string{st.Delivery.Deliver.LastError, fmt.Sprint(l.Router().Flush(t.Context()))}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err = l.Router().Close(ctx)
			mu.Lock()
			defer mu.Unlock()
			texts = append(append(texts, err.Error()), eventLog...)
			for _, text := range texts {
				if strings.Contains(text, "secret") || strings.Contains(text, "user:"+password) {
					t.Errorf("%q: %s", password, text)
				}
			}
			if all := strings.Join(texts, "\n"); strings.Count(all, "dial tcp 127.0.0.1:1: connect: connection refused") < 4 {
				t.Errorf("%q: the errors do not contain the cause: %s", password, all)
			}
		})
	}
}
