package defects_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
)

// checkLost checks the report and the error of a Close that lost n records. No record may be
// pending.
func checkLost(tb testing.TB, n uint64, rep batch.Report, err error) {
	tb.Helper()
	if rep.Pending.Total() != 0 || rep.Dropped[batch.Shutdown] != n || rep.Check() != nil {
		tb.Errorf("Close lost %d records and reports %s", n, rep.Account)
	}
	if err == nil || !strings.Contains(err.Error(), strconv.FormatUint(n, 10)) {
		tb.Errorf("Close lost %d records and returned: %v", n, err)
	}
}

// checkUnknown checks that 1000 records, which were sent and not answered, are counted as unknown.
func checkUnknown(tb testing.TB, rep batch.Report) {
	tb.Helper()
	if rep.Unknown != 1000 {
		tb.Errorf("1000 records were sent and not answered, Report.Unknown is %d: %s", rep.Unknown, rep.Account)
	}
}

// checkDeadline checks that err reports the caller's deadline.
func checkDeadline(tb testing.TB, err error) {
	tb.Helper()
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		tb.Errorf("the deadline of Close has passed, the error is %v", err)
	}
}

// outcomeBeyondBatch uses a destination whose first outcome lists records beyond the end of its
// batch as open.
func outcomeBeyondBatch(tb testing.TB) {
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
		tb.Fatalf("cannot run the test: %v", err)
	}
	for _, line := range []string{"one\n", "two\n", "three\n"} {
		if _, err := out.Write([]byte(line)); err != nil {
			tb.Fatalf("cannot run the test: %v", err)
		}
	}
	rep, err := out.Shutdown(context.Background())
	if got := strings.Join(taken, ""); got != "one\ntwo\nthree\n" || rep.Delivered != 3 || err != nil {
		tb.Errorf("%q arrived, the account is %s, Close %v", got, rep.Account, err)
	}
}

// closeTime is the default deadline of Close.
const closeTime = 5 * time.Second

// checkKept calls the function end, which closes an output with n records in the spool. Close must
// return nil in time and keep the records.
func checkKept(tb testing.TB, n uint64, end func() (batch.Report, error)) {
	tb.Helper()
	start := time.Now()
	rep, err := end()
	if took := time.Since(start); took > closeTime {
		tb.Errorf("Close took %s", took)
	}
	if err != nil {
		tb.Errorf("all records are in the spool, Close returned: %v", err)
	}
	if rep.Pending.Spill != n || rep.Pending.Total() != n || rep.Dropped.Total() != 0 || rep.Check() != nil {
		tb.Errorf("Close kept %d records and reports %s", n, rep.Account)
	}
}

// closeLosing calls the function end, which closes an output with n records in memory while its
// destination is down. Close must report the records as lost, and return in time.
func closeLosing(tb testing.TB, n uint64, end func() (batch.Report, error)) {
	tb.Helper()
	start := time.Now()
	rep, err := end()
	if took := time.Since(start); took > closeTime {
		tb.Errorf("Close took %s", took)
	}
	checkLost(tb, n, rep, err)
}

// closeKeptForward closes a Logger and its Output while all records are in the spool.
func closeKeptForward(tb testing.TB) {
	l := logger(tb, down, func(c *forwardOutput) { c.SpoolDir = tb.TempDir() })
	post(tb, l, 1, 1000)
	inSpool(tb, l, 1000)
	checkKept(tb, 1000, func() (batch.Report, error) { return l.Close(context.Background()) })
	s := logger(tb, down, func(c *forwardOutput) { c.SpoolDir = tb.TempDir() })
	post(tb, s, 1, 1000)
	inSpool(tb, s, 1000)
	checkKept(tb, 1000, func() (batch.Report, error) { return s.Output.Shutdown(context.Background()) })
}

// inSpool waits until the output a has n pending records, all of them in its spool.
func inSpool(tb testing.TB, a accounter, n uint64) {
	tb.Helper()
	if !await(time.Minute, func() bool { return a.Account().Pending.Spill == n && a.Account().Pending.Total() == n }) {
		tb.Fatalf("cannot run the test: not all records are in the spool: %s", a.Account())
	}
}

// closeLostForward closes a Logger without a spool while its server is down.
func closeLostForward(tb testing.TB) {
	l := logger(tb, down, nil)
	post(tb, l, 1, 1000)
	time.Sleep(time.Second)
	closeLosing(tb, 1000, func() (batch.Report, error) { return l.Close(context.Background()) })
}

// closeKeptLoki closes an Output, and then a Router, while all records are in the spool.
func closeKeptLoki(tb testing.TB) {
	s, log := lokiSink(tb, lokiDown, func(c *lokiOutput) { c.SpoolDir = tb.TempDir() })
	write(log, 1, 1000)
	inSpool(tb, s, 1000)
	checkKept(tb, 1000, func() (batch.Report, error) { return s.Shutdown(context.Background()) })
	h := lokiHandler(tb, lokiDown, func(c *lokiOutput) { c.SpoolDir = tb.TempDir() })
	write(slog.New(h), 1, 1000)
	inSpool(tb, h.Sink, 1000)
	checkKept(tb, 1000, func() (batch.Report, error) { return h.Close(context.Background()) })
}

// closeLostLoki closes an Output, and then a Router, without a spool while Loki is down.
func closeLostLoki(tb testing.TB) {
	s, log := lokiSink(tb, lokiDown, nil)
	write(log, 1, 1000)
	time.Sleep(time.Second)
	closeLosing(tb, 1000, func() (batch.Report, error) { return s.Shutdown(context.Background()) })
	h := lokiHandler(tb, lokiDown, nil)
	write(slog.New(h), 1, 1000)
	time.Sleep(time.Second)
	closeLosing(tb, 1000, func() (batch.Report, error) { return h.Close(context.Background()) })
}
