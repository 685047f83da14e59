package loki

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/forebay-log/forebay/batch"
)

// A PushError is Loki's refusal of a request, or the lack of an answer.
type PushError struct {
	Status  int    // HTTP status; 0: no answer
	Message string // the beginning of the answer; never holds a credential of the Config
	Labels  string // of the first stream of the request
	cause   error
}

// Error returns status, message and stream.
func (e *PushError) Error() string {
	if e.Status == 0 {
		return "loki: cannot push: " + e.Message
	}
	text := fmt.Sprintf("loki: push answered %d", e.Status)
	if t := http.StatusText(e.Status); t != "" {
		text += " " + t
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	if e.Labels != "" && !strings.Contains(e.Message, e.Labels) {
		text += " (stream " + e.Labels + ")"
	}
	return text
}

// Unwrap returns the error of the connection, if that was it.
func (e *PushError) Unwrap() error { return e.cause }

// A verdict is what an answer means for the request.
type verdict uint8

const (
	taken          verdict = iota
	tryAgain               // nothing is stored, and later it may be
	hold                   // nothing will be until somebody changes something
	tooLarge               // parts of it may be taken
	tooManyStreams         // the stream is one too many
	labelsRefused          // the labels are refused, and so all entries
	tenantRefused          // the tenant is, and others are taken, see onlyTenant
	renewed                // as hold, but there is another token now
	entriesRefused         // some entries are refused and the others stored
	requestRefused         // all of it is refused, maybe because of one entry
)

// An answer is an answer of Loki, understood.
type answer struct {
	verdict verdict
	err     error   // nil if taken
	faults  *faults // of entriesRefused
	why     Reason  // of tooManyStreams and labelsRefused
}

// judge reads an answer to a request of size bytes whose first record has the time
// first. What Loki 3.7 says and means by it:
//
//	204       stored (of the last stream of a request, that is); 200 is no answer of
//	          Loki, but that of a page to log in
//	260       ingestion is blocked: nothing is stored
//	400       either the request could not be read, or some entries were refused
//	          and the others stored; only the text tells
//	413, 500  larger than a component takes; 429 too, if it exceeds what the rate
//	          limit lets through at once
//	500       also: metadata with a name of "_" alone; nothing is stored, nor ever is
//	429       too much at present, or too many streams
func (s *Pusher) judge(res *http.Response, text []byte, size int, segs []segment, first int64) answer {
	status := res.StatusCode
	if status == http.StatusNoContent {
		return answer{}
	}
	message := string(bytes.TrimSpace(cutUTF8(text, 1024)))
	if !utf8.ValidString(message) {
		message = strings.ToValidUTF8(message, "\ufffd")
	}
	pe := &PushError{Status: status, Message: printable(s.redact(message)), Labels: printable(segs[0].st.describe())}
	after := retryAfter(res.Header.Get("Retry-After"), time.Now())
	again := func() answer {
		return answer{verdict: tryAgain, err: &batch.SendError{Kind: batch.KindRetry, Err: pe, After: after, Status: status}}
	}
	holds := func() answer {
		return answer{verdict: hold, err: &batch.SendError{Kind: batch.KindFatal, Err: pe, After: after, Status: status}}
	}
	refusedFor := func(v verdict, f *faults) answer { return answer{verdict: v, err: pe, faults: f} }
	switch {
	case status == http.StatusBadRequest:
		if f := findFaults(text); f != nil {
			return refusedFor(entriesRefused, f)
		}
		if labelsText.Match(text) {
			a := refusedFor(labelsRefused, nil)
			if a.why = LabelTooMany; bytes.Contains(text, []byte("too long")) {
				a.why = LabelTooLong
			}
			return a
		}
		return refusedFor(requestRefused, nil)
	case status == http.StatusUnprocessableEntity:
		return refusedFor(requestRefused, nil)
	case status == http.StatusRequestEntityTooLarge:
		return refusedFor(tooLarge, nil)
	case status == http.StatusTooManyRequests:
		switch {
		case bytes.Contains(text, []byte("stream limit exceeded")):
			a := again()
			a.verdict, a.why = tooManyStreams, StreamsFull
			return a
		case s.overBurst(text, size, segs, first, time.Now()):
			return refusedFor(tooLarge, nil)
		}
		return again()
	case status == http.StatusInternalServerError && isTooLarge(text):
		return refusedFor(tooLarge, nil)
	case status == http.StatusInternalServerError && bytes.Contains(text, []byte("normalization for label name")):
		return refusedFor(requestRefused, nil) // for a name in metadata, see metaName
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusTooEarly:
		return again()
	case status >= 300 && status < 400:
		pe.Message = "a redirect; set url to where it leads, which is not followed"
		return holds()
	}
	return holds() // 401, 403, 404, 260 and whatever else is no answer of a working Loki
}

func entriesOf(segs []segment) (n int) {
	for _, s := range segs {
		n += len(s.order)
	}
	return n
}

// isTooLarge knows what gRPC says of a message above its limit.
func isTooLarge(text []byte) bool {
	return bytes.Contains(text, []byte("larger than max")) || bytes.Contains(text, []byte("ResourceExhausted"))
}

// printable escapes what a terminal or a reader of a log could take for more than
// text.
func printable(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return s
	}
	var sb strings.Builder
	for _, r := range s {
		if strconv.IsPrint(r) {
			sb.WriteRune(r)
		} else {
			q := strconv.QuoteRuneToASCII(r)
			sb.WriteString(q[1 : len(q)-1])
		}
	}
	return sb.String()
}

// retryAfter reads the header of that name: seconds or a date.
func retryAfter(h string, now time.Time) time.Duration {
	if h == "" {
		return 0
	}
	if n, err := strconv.ParseUint(h, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if t, err := http.ParseTime(h); err == nil {
		return max(t.Sub(now), 0)
	}
	return 0
}
