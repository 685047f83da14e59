package defects_test

import (
	"testing"

	"github.com/forebay-log/forebay/internal/bubble"
)

// A defect is a fixed defect with a test that reproduces it.
type defect struct {
	name     string
	promise  string // the broken promise
	run      func(tb testing.TB)
	realTime bool // run needs the machine's clock; if false, it runs in a synctest bubble
}

var defects = []defect{
	{"order-during-report", "first copies arrive in order when a batch begins while a failure is being reported", orderDuringReport, true},
	{"order-one-message", "first copies arrive in order at a server that closes after each message", orderOneMessage, false},
	{"order-failback", "first copies arrive in order when a better server is available again", orderFailback, false},
	{"poison-every-fourth", "no good record is condemned by a server that accepts every 4th message", acceptEveryFourth, false},
	{"poison-resets", "no good record is condemned by a server that resets most messages for a while", resetMostMessages, false},
	{"poison-loki", "no good record is condemned by a Loki that fails in changing ways for ten minutes, and first copies arrive in order", unreliableLoki, false},
	{"no-ack-reset", "without acknowledgements, a reset after the message is not a failure", noAckReset, false},
	{"spool-other-wire", "the spool of a Loki output is delivered after a change of Wire", otherWire, false},
	{"spool-unknown-form", "records in a form that no driver knows stay on disk and are counted", unknownForm, false},
	{"loki-unsized-answer", "an answer of Loki that may be incomplete is not used", unsizedAnswer, false},
	{"loki-cut-answer", "an incomplete answer of Loki is not used", cutAnswer, false},
	{"loki-long-refusal", "records that Loki has stored are not sent again because its answer is long", longRefusal, false},
	{"loki-one-stream", "a stream that Loki does not create does not delay the others", refusedStream, false},
	{"loki-redaction", "redacted values are in no line, label or metadata", redaction, false},
	{"outcome-beyond-batch", "an outcome that names records beyond the batch settles no record", outcomeBeyondBatch, false},
	{"memory-limit", "BufferBytes limits records larger than a slab, and no lower limit does", bufferBytes, false},
	{"close-unknown-forward", "Close counts the records that were sent and not answered", unknownForward, false},
	{"close-deadline-forward", "the error of Close at a Forward server wraps DeadlineExceeded, not Canceled", deadlineForward, false},
	{"close-unknown-hanging", "Close counts the records of a write that hangs", unknownHanging, false},
	{"close-unknown-loki", "Close counts the lines that were pushed and not answered", unknownLoki, false},
	{"close-deadline-loki", "the error of Close at Loki wraps DeadlineExceeded, not Canceled", deadlineLoki, false},
	{"close-hanging-forward", "after Close no record is pending, and the account does not change", hangingForward, false},
	{"close-kept-forward", "Close returns nil when all records are in the spool", closeKeptForward, false},
	{"close-lost-forward", "the error of Close names the number of lost records", closeLostForward, false},
	{"close-kept-loki", "Close returns nil when all records are in the spool", closeKeptLoki, false},
	{"close-lost-loki", "the error of Close names the number of lost records", closeLostLoki, false},
	{"fallback-account", "a fallback Logger counts the records that it delivers", fallbackAccount, false},
	{"dead-letters", "refused and oversize records become dead letters", deadLetters, false},
	{"router-events", "OnError of an output receives the events of its Router", routerEvents, false},
	{"marker-level", "markers about dropped records are in the stream of level warn", markerLevel, false},
}

func TestDefectsStayFixed(t *testing.T) {
	for _, d := range defects {
		t.Run(d.name, func(t *testing.T) {
			run := func(t *testing.T) {
				if d.run(t); t.Failed() {
					t.Errorf("broken promise: %s", d.promise)
				}
			}
			if d.realTime {
				run(t)
			} else {
				bubble.Test(t, run)
			}
		})
	}
}
