package falls_test

import ()

import ()

// falls is the list. The numbers are those of the report of the attack.
var falls = []fall{
	{1, "told", "first copies arrive in order when a batch begins while a failure is told", mended, orderWhileTold, true},
	{1, "one-message", "first copies arrive in order at a server that closes after each message", mended, orderOneMessage, false},
	{1, "failback", "first copies arrive in order when a better server is back", mended, orderFailback, false},
	{2, "every-fourth", "no good record is condemned by a server that takes every 4th message", mended, everyFourth, false},
	{2, "resets", "no good record is condemned by a server that resets most messages for a while", mended, resets, false},
	{3, "no-ack-reset", "without acknowledgements a reset after the message is an end like any other", mended, noAckReset, false},
	{5, "other-wire", "a spool of Loki is delivered whatever Wire is now", mended, otherWire, false},
	{5, "unknown-form", "records of a form that no driver knows stay on disk and are counted", mended, unknownForm, false},
	{2, "sick-loki", "no good record is condemned by a Loki that is ill for ten minutes, and first copies arrive in order", mended, sickLoki, false},
	{6, "closed-answer", "an answer of Loki that may have been cut is no answer", mended, closedAnswer, false},
	{7, "long-refusal", "what Loki has stored is not sent again because the answer is long", mended, longRefusal, false},
	{9, "nonsense", "an answer that names records beyond the batch settles nothing", mended, nonsense, false},
	{10, "buffer-bytes", "BufferBytes bounds records larger than a slab, and nothing less does", mended, bufferBytes, false},
	{6, "cut-answer", "an answer of Loki that was cut is no answer", mended, cutAnswer, false},
	{8, "one-stream", "one stream too many at Loki does not hold the others", mended, streamTooMany, false},
	{11, "redaction", "what a rule names is in no line, label or metadata of Loki", mended, redaction, false},
	{15, "unknown-forward", "Close counts the records that were sent and not answered", mended, unknownForward, false},
	{15, "deadline-forward", "the error of Close at a Forward server wraps DeadlineExceeded, not Canceled", mended, deadlineForward, false},
	{15, "unknown-hanging", "Close counts the records of a write that hangs", mended, unknownHanging, false},
	{15, "unknown-loki", "Close counts the lines that were pushed and not answered", mended, unknownLoki, false},
	{15, "deadline-loki", "the error of Close at Loki wraps DeadlineExceeded, not Canceled", mended, deadlineLoki, false},
	{16, "hanging-forward", "after Close nothing is pending, and the account stays as it is", mended, hangingForward, false},
	{19, "fallback-account", "a fallback Logger accounts for the records it delivers", mended, fallbackAccount, false},
	{19, "refused-letters", "refused and over-long records reach the dead letters", mended, refusedLetters, false},
	{19, "router-events", "OnError of a Handler is told what its Router has to say", mended, routerEvents, false},
	{20, "marker-level", "lines about dropped records are in the stream of level warn", mended, markerLevel, false},
	{0, "kept-forward", "Close is content when all records are in the spool", mended, closeKeptForward, false},
	{0, "lost-forward", "Close names the records that it lost", mended, closeLostForward, false},
	{0, "kept-loki", "Close is content when all records are in the spool", mended, closeKeptLoki, false},
	{0, "lost-loki", "Close names the records that it lost", mended, closeLostLoki, false},
}
