package falls_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
)

// lost complains unless a Close that lost n records says so, and has nothing left.
func lost(tb TB, n uint64, rep batch.Report, err error) {
	tb.Helper()
	if rep.Pending.Total() != 0 || rep.Dropped[batch.Shutdown] != n || rep.Check() != nil {
		tb.Errorf("Close lost %d records and reports %s", n, rep.Account)
	}
	if err == nil || !strings.Contains(err.Error(), strconv.FormatUint(n, 10)) {
		tb.Errorf("Close lost %d records and says: %v", n, err)
	}
}

// allUnknown complains unless all of 1000 records, which were sent and not answered,
// are unknown.
func allUnknown(tb TB, rep batch.Report) {
	tb.Helper()
	if rep.Unknown != 1000 {
		tb.Errorf("1000 records were sent and not answered, Report.Unknown is %d: %s", rep.Unknown, rep.Account)
	}
}

// outOfTime complains unless err says that the caller's deadline has passed.
func outOfTime(tb TB, err error) {
	tb.Helper()
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		tb.Errorf("the deadline of Close has passed, the error is %v", err)
	}
}

// nonsense has a destination answer once that what is behind the end of its batch is open.
func nonsense(tb TB) {
	calls := 0
	var taken []string
	out, err := deliver.NewOutput(deliver.SendFunc(deliver.Traits{}, func(_ context.Context, b *batch.Batch) batch.Outcome {
		if calls++; calls == 1 {
			return batch.Outcome{Open: batch.From(b.Len() + 1), Why: errors.New("later")}
		}
		taken = append(taken, string(b.AppendTo(nil)))
		return batch.Outcome{}
	}), &deliver.OutputOptions{OnError: func(batch.Event) {}})
	if err != nil {
		tb.Broken("%v", err)
	}
	for _, line := range []string{"one\n", "two\n", "three\n"} {
		if _, err := out.Write([]byte(line)); err != nil {
			tb.Broken("%v", err)
		}
	}
	rep, err := out.Shutdown(context.Background())
	if got := strings.Join(taken, ""); got != "one\ntwo\nthree\n" || rep.Delivered != 3 || err != nil {
		tb.Errorf("%q arrived, the account says %s, Close %v", got, rep.Account, err)
	}
}

// closeTime is the default of the time that Close has.
const closeTime = 5 * time.Second

// safe complains unless end, a Close called with n records in the spool, is content, and
// within its time.
func safe(tb TB, n uint64, end func() (batch.Report, error)) {
	tb.Helper()
	start := time.Now()
	rep, err := end()
	if took := time.Since(start); took > closeTime {
		tb.Errorf("Close took %s", took)
	}
	if err != nil {
		tb.Errorf("all records are in the spool, Close says: %v", err)
	}
	if rep.Pending.Spill != n || rep.Pending.Total() != n || rep.Dropped.Total() != 0 || rep.Check() != nil {
		tb.Errorf("Close kept %d records and reports %s", n, rep.Account)
	}
}

// loses complains unless end, a Close called with n records in memory and a destination that
// is down, names them, within its time.
func loses(tb TB, n uint64, end func() (batch.Report, error)) {
	tb.Helper()
	start := time.Now()
	rep, err := end()
	if took := time.Since(start); took > closeTime {
		tb.Errorf("Close took %s", took)
	}
	lost(tb, n, rep, err)
}

// closeKeptForward closes a Logger and a Sink whose records are in the spool.
func closeKeptForward(tb TB) {
	l := logger(tb, down, func(c *forwardOutput) { c.SpoolDir = tb.TempDir() })
	post(tb, l, 1, 1000)
	inSpool(tb, l, 1000)
	safe(tb, 1000, func() (batch.Report, error) { return l.Close(background) })
	s := logger(tb, down, func(c *forwardOutput) { c.SpoolDir = tb.TempDir() })
	post(tb, s, 1, 1000)
	inSpool(tb, s, 1000)
	safe(tb, 1000, func() (batch.Report, error) { return s.Output.Shutdown(background) })
}

// inSpool waits until n records are in the spool of a.
func inSpool(tb TB, a accountant, n uint64) {
	tb.Helper()
	if !await(time.Minute, func() bool { return a.Account().Pending.Spill == n && a.Account().Pending.Total() == n }) {
		tb.Broken("the spool does not have them: %s", a.Account())
	}
}

// closeLostForward closes a Logger whose records are nowhere else.
func closeLostForward(tb TB) {
	l := logger(tb, down, nil)
	post(tb, l, 1, 1000)
	time.Sleep(time.Second)
	loses(tb, 1000, func() (batch.Report, error) { return l.Close(background) })
}

// closeKeptLoki closes a Sink and a Handler whose records are in the spool.
func closeKeptLoki(tb TB) {
	s, log := lokiSink(tb, lokiDown, func(c *lokiOutput) { c.SpoolDir = tb.TempDir() })
	write(log, 1, 1000)
	inSpool(tb, s, 1000)
	safe(tb, 1000, func() (batch.Report, error) { return s.Shutdown(background) })
	h := lokiHandler(tb, lokiDown, func(c *lokiOutput) { c.SpoolDir = tb.TempDir() })
	write(slog.New(h), 1, 1000)
	inSpool(tb, h.Sink, 1000)
	safe(tb, 1000, func() (batch.Report, error) { return h.Close(background) })
}

// closeLostLoki closes a Sink and a Handler whose records are nowhere else.
func closeLostLoki(tb TB) {
	s, log := lokiSink(tb, lokiDown, nil)
	write(log, 1, 1000)
	time.Sleep(time.Second)
	loses(tb, 1000, func() (batch.Report, error) { return s.Shutdown(background) })
	h := lokiHandler(tb, lokiDown, nil)
	write(slog.New(h), 1, 1000)
	time.Sleep(time.Second)
	loses(tb, 1000, func() (batch.Report, error) { return h.Close(background) })
}
