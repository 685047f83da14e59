package loki

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/httpsend"
	"github.com/forebay-log/forebay/internal/secrets"
)

// A PushError is a refusal of a request by Loki, or a missing response.
type PushError struct {
	Status  int    // HTTP status; 0: no response
	Message string // the beginning of the response, without credentials of the Config
	Labels  string // of the first stream of the request
	cause   error
	// unanswered is set if Loki may have stored the request: there is no Status, and a
	// connection was made.
	unanswered bool
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

// HTTPStatus returns Status. It is included in dead letters.
func (e *PushError) HTTPStatus() int { return e.Status }

// Unwrap returns the error of the connection, if any.
func (e *PushError) Unwrap() error { return e.cause }

// Is reports whether target is [batch.ErrUnanswered] and the push had no response, so Loki
// may have stored it.
func (e *PushError) Is(target error) bool { return target == batch.ErrUnanswered && e.unanswered }

// A verdict is the meaning of a response for the request.
type verdict uint8

const (
	taken          verdict = iota
	tryAgain               // nothing is stored, and later it may be
	limited                // likewise, because of a limit of the tenant or the stream: see others
	unanswered             // nobody knows what became of it
	hold                   // nothing will be stored until somebody changes something
	denied                 // as hold, unless it is about the tenant alone: see onlyTenant
	tooLarge               // parts of it may be taken
	tooManyStreams         // the stream is one too many
	labelsRefused          // the labels are refused, and so all entries
	entriesRefused         // some entries are refused and the others stored
	requestRefused         // all of it is refused, maybe because of one entry
	unknownWords           // likewise, in words that are not known: maybe not by Loki, and not because of an entry
)

// An answer is an answer of Loki, understood.
type answer struct {
	verdict verdict
	err     error         // nil if taken
	after   time.Duration // Retry-After
	faults  *faults       // of entriesRefused
	each    []*faults     // likewise, by segment, of several; nil: it is not known which is meant
	why     reason        // of tooManyStreams and labelsRefused
	stream  bool          // of limited: the limit is that of the stream, not of the tenant
}

// judge reads an answer to a request of size bytes whose first record has the time
// first. whole says that text is all of it. What Loki 3.7 says and means by it:
//
//	204       stored (of the last stream of a request, that is: see trust); 200 is no
//	          answer of Loki, but that of a page to log in
//	260       ingestion is blocked: nothing is stored
//	400       either the request could not be read, or some entries were refused
//	          and the others stored; only the text tells. In other words than Loki's it
//	          says nothing of the entries: see session.Send
//	413, 500  larger than a component takes; 429 too, if it exceeds what the rate
//	          limit lets through at once
//	500       also: metadata with a name of "_" alone; nothing is stored, nor ever is
//	429       too much at present, or too many streams
func (s *client) judge(res *http.Response, text []byte, whole bool, size int, segs []segment, first int64) answer {
	status := res.StatusCode
	if status == http.StatusNoContent {
		return answer{}
	}
	message := secrets.Hide(strings.ToValidUTF8(string(bytes.TrimSpace(cutUTF8(text, 4<<10))), "\ufffd"), hiddenMark, s.hidden()...)
	pe := &PushError{Status: status, Message: httpsend.Printable(string(cutUTF8([]byte(message), 1<<10))), Labels: httpsend.Printable(segs[0].st.describe())}
	after := httpsend.RetryAfter(res.Header.Get("Retry-After"), time.Now())
	a := answer{err: pe, after: after}
	switch {
	case status == http.StatusBadRequest && whole && isForeign(res.Header, text):
		a.verdict = hold
	case status == http.StatusBadRequest:
		if a.faults, a.each = findFaults(text, whole, segs); a.faults != nil {
			a.verdict = entriesRefused
		} else if labelsText().Match(text) {
			a.verdict = labelsRefused
			if a.why = labelTooMany; bytes.Contains(text, []byte("too long")) {
				a.why = labelTooLong
			}
		} else if requestText().Match(text) {
			a.verdict = requestRefused
		} else {
			a.verdict = unknownWords
		}
	case status == http.StatusUnprocessableEntity:
		a.verdict = unknownWords
	case status == http.StatusRequestEntityTooLarge:
		a.verdict = tooLarge
		s.shrink(size, segs)
	case status == http.StatusTooManyRequests:
		switch {
		case bytes.Contains(text, []byte("stream limit exceeded")):
			a.verdict, a.why = tooManyStreams, streamsFull
		case len(segs) > 1 && ofStream(text): // of one of them
			a.verdict, a.stream = limited, true
		case s.overBurst(text, size, segs, first, time.Now()):
			a.verdict = tooLarge
		default:
			a = s.shut(a, text, segs, time.Now())
		}
	case status == http.StatusInternalServerError && isTooLarge(text):
		a.verdict = tooLarge
		s.shrink(size, segs)
	case status == http.StatusInternalServerError && bytes.Contains(text, []byte("normalization for label name")):
		a.verdict = requestRefused // for a name in metadata, see metaName
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusTooEarly:
		a.verdict = tryAgain
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == statusBlocked:
		a.verdict = denied
	case status >= 300 && status < 400:
		pe.Message = "a redirect; set url to where it leads, which is not followed"
		a.verdict = hold
	default: // 404 and whatever else is no answer of a working Loki
		a.verdict = hold
	}
	return a
}

// isForeign reports whether a 400 is of a server in front of Loki, or of another one, which
// has not looked at the entries: Loki says in words what is wrong with them.
func isForeign(h http.Header, text []byte) bool {
	text = bytes.TrimSpace(text)
	return len(text) == 0 || text[0] == '<' || strings.Contains(h.Get("Content-Type"), "html")
}

// statusBlocked is Loki's answer while it stores nothing of a tenant.
const statusBlocked = 260

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
