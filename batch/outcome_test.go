package batch_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// Check rejects invalid outcomes, and Err returns the reason why not all records are settled.
func TestOutcome(t *testing.T) {
	why, refusal := errors.New("why"), errors.New("refusal")
	for _, tt := range []struct {
		name  string
		o     batch.Outcome
		valid bool  // the outcome is valid for a batch of 3 records
		err   error // result of Err
	}{
		{"settled", batch.Outcome{}, true, nil},
		{"open", batch.Outcome{Open: batch.All(), Why: why}, true, why},
		{"refused", batch.Outcome{Refused: batch.Of(0, 2), Refusal: refusal}, true, refusal},
		{"both", batch.Outcome{Open: batch.From(1), Why: why, Refused: batch.Of(0), Refusal: refusal}, true, why},
		{"none is open", batch.Outcome{Open: batch.From(3), Why: why}, true, why},
		{"behind the end", batch.Outcome{Open: batch.From(4), Why: why}, false, why},
		{"before the first", batch.Outcome{Open: batch.From(-1), Why: why}, false, why},
		{"far before the first", batch.Outcome{Refused: batch.From(-9), Refusal: refusal}, false, refusal},
		{"not there", batch.Outcome{Open: batch.Of(1, 3), Why: why}, false, why},
		{"not ascending", batch.Outcome{Open: batch.Of(2, 1), Why: why}, false, why},
		{"twice", batch.Outcome{Open: batch.Of(1), Why: why, Refused: batch.From(1), Refusal: refusal}, false, why},
	} {
		if err := tt.o.Check(3); (err == nil) != tt.valid {
			t.Errorf("%s: Check returned %v", tt.name, err)
		}
		if err := tt.o.Err(); err != tt.err {
			t.Errorf("%s: Err returned %v", tt.name, err)
		}
	}
	if batch.RetryAfter(nil, time.Second) != nil || batch.Fatal(nil) != nil {
		t.Error("an error of none")
	}
	if err := batch.Fatal(batch.RetryAfter(why, time.Second)); !errors.Is(err, why) || err.Error() != "why" {
		t.Error(err)
	}
	for _, o := range []batch.Outcome{{Open: batch.All()}, {Refused: batch.Of(1)}} {
		if o.Err() == nil {
			t.Errorf("%+v: no error without a reason", o)
		}
	}
}

// Outcomes that a driver returns for a batch.
func ExampleOutcome() {
	for _, o := range []batch.Outcome{
		{},
		batch.FailedOutcome(errors.New("connection reset")),
		batch.FailedOutcome(batch.RetryAfter(errors.New("too many requests"), 3*time.Second)),
		batch.FailedOutcome(batch.Fatal(errors.New("wrong password"))),
		{Open: batch.From(2), Why: errors.New("disk full")},
		{Open: batch.All(), Why: errors.New("body above 4 MiB"), Advice: batch.Smaller},
		{Refused: batch.Of(1), Refusal: errors.New("timestamp too old")},
	} {
		fmt.Printf("open=%v refused=%v after=%v advice=%v: %v\n",
			o.Open.Append(nil, 3), o.Refused.Append(nil, 3), o.After, o.Advice, o.Err())
	}
	// Output:
	// open=[] refused=[] after=0s advice=again: <nil>
	// open=[0 1 2] refused=[] after=0s advice=again: connection reset
	// open=[0 1 2] refused=[] after=3s advice=again: too many requests
	// open=[0 1 2] refused=[] after=0s advice=hold: wrong password
	// open=[2] refused=[] after=0s advice=again: disk full
	// open=[0 1 2] refused=[] after=0s advice=smaller: body above 4 MiB
	// open=[] refused=[1] after=0s advice=again: timestamp too old
}
