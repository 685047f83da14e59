package loki

import (
	"bytes"
	"net/http"
	"strings"
	"time"

	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/internal/httpsend"
	"github.com/forebay-log/forebay/internal/secrets"
)

// A verdict is the meaning of a response for the request.
type verdict uint8

const (
	accepted       verdict = iota
	tryAgain               // not stored, but may be later
	limited                // not stored because of a limit of the tenant or the stream: see others
	unanswered             // the outcome is unknown
	hold                   // nothing is stored until an operator intervenes
	denied                 // like hold, unless only the tenant is refused: see onlyTenant
	tooLarge               // parts of it may be accepted
	tooManyStreams         // no room for the stream
	labelsRefused          // the labels are refused, and so all entries
	entriesRefused         // some entries are refused and the others stored
	requestRefused         // the whole request is refused, possibly because of one entry
	unknownText            // the same with an unknown text: possibly not from Loki, and not because of an entry
)

// An answer is a decoded response of Loki.
type answer struct {
	verdict  verdict
	err      error          // nil if accepted
	after    time.Duration  // Retry-After
	refusals *refusalText   // of entriesRefused
	each     []*refusalText // of entriesRefused, by segment, if there are several; nil: the segment is unknown
	why      reason         // of tooManyStreams and labelsRefused
	stream   bool           // of limited: the limit applies to the stream, not the tenant
}

// judge decodes a response to a request of size bytes whose first record has the time
// first. whole reports whether text is complete. The statuses of Loki 3.7:
//
//	204       stored, as far as the last stream of a request is concerned: see trust;
//	          a 200 does not come from Loki but from a login page
//	260       ingestion is blocked: nothing is stored
//	400       either the request could not be read, or some entries were refused
//	          and the others stored; only the text distinguishes them. A text that is
//	          not Loki's means nothing for the entries: see session.Send
//	413, 500  larger than a component accepts; also 429, if larger than the burst of
//	          the rate limit
//	500       also: metadata with the name "_"; not stored, also when repeated
//	429       too much at present, or too many streams
func (s *client) judge(res *http.Response, text []byte, whole bool, size int, segs []segment, first int64) answer {
	status := res.StatusCode
	if status == http.StatusNoContent {
		return answer{}
	}
	message := secrets.Hide(strings.ToValidUTF8(string(bytes.TrimSpace(cutUTF8(text, 4<<10))), "\ufffd"), hiddenMark, s.hidden()...)
	pe := &httpclient.Error{Package: "loki", Status: status, Message: httpsend.Printable(string(cutUTF8([]byte(message), 1<<10))), Labels: httpsend.Printable(segs[0].st.describe())}
	after := httpsend.RetryAfter(res.Header.Get("Retry-After"), time.Now())
	a := answer{err: pe, after: after}
	switch {
	case status == http.StatusBadRequest && whole && isForeign(res.Header, text):
		a.verdict = hold
	case status == http.StatusBadRequest:
		if a.refusals, a.each = parseRefusals(text, whole, segs); a.refusals != nil {
			a.verdict = entriesRefused
		} else if labelsText().Match(text) {
			a.verdict = labelsRefused
			if a.why = labelTooMany; bytes.Contains(text, []byte("too long")) {
				a.why = labelTooLong
			}
		} else if requestText().Match(text) {
			a.verdict = requestRefused
		} else {
			a.verdict = unknownText
		}
	case status == http.StatusUnprocessableEntity:
		a.verdict = unknownText
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
			a = s.limitReached(a, text, segs, time.Now())
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
		pe.Message = "redirects are not followed; set url to the target"
		a.verdict = hold
	default: // 404 and other statuses that a working Loki does not send
		a.verdict = hold
	}
	return a
}

// isForeign reports whether a 400 comes from a proxy or another server that has not read
// the entries: Loki's own text describes the error.
func isForeign(h http.Header, text []byte) bool {
	text = bytes.TrimSpace(text)
	return len(text) == 0 || text[0] == '<' || strings.Contains(h.Get("Content-Type"), "html")
}

// statusBlocked is Loki's status while it stores no records of a tenant.
const statusBlocked = 260

func entriesOf(segs []segment) (n int) {
	for _, s := range segs {
		n += len(s.order)
	}
	return n
}

// isTooLarge recognizes gRPC's text for a message above its limit.
func isTooLarge(text []byte) bool {
	return bytes.Contains(text, []byte("larger than max")) || bytes.Contains(text, []byte("ResourceExhausted"))
}
