package forebaytest_test

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/forebaytest"
)

// A mailer is the code under test in the example.
type mailer struct{ log *forebay.Logger }

func (m *mailer) send(to string) {
	m.log.Info("sent", slog.String("to", to), slog.Group("smtp", slog.Int("code", 250)))
}

func (m *mailer) retry() {
	m.log.Warn("retrying", slog.Any("err", errors.New("connection refused")), slog.Int("attempt", 2))
}

func TestMailer(t *testing.T) {
	rec := forebaytest.New(t)
	m := &mailer{rec.Logger()}

	m.send("bob")
	rec.Want(slog.LevelInfo, "sent", "to", "bob", "smtp.code", 250)
	rec.None(slog.LevelWarn)

	go m.retry()
	r := rec.Wait(time.Minute, slog.LevelWarn, "retrying", "err", errors.New("connection refused"))
	if r.Attrs["attempt"] != int64(2) {
		t.Errorf("not the second attempt: %v", r)
	}
}

func ExampleNew() {
	t := new(testing.T) // the parameter of a test function

	rec := forebaytest.New(t)
	m := &mailer{rec.Logger()}
	m.send("bob")
	r := rec.Want(slog.LevelInfo, "sent", "smtp.code", 250)
	rec.None(slog.LevelWarn)

	fmt.Println(r.Message, r.Attrs["to"])
	// Output: sent bob
}
