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

// interpret interprets a response to a request of size bytes. The parameter first is the time of
// the first record, in Unix ns, and whole reports whether text is complete. Loki 3.7 uses these
// statuses:
//
//	204       All entries of the last stream are stored, and those of other streams as far
//	          as [trust] assumes.
//	200       Not sent by Loki; for example the login page of a proxy.
//	260       Ingestion is blocked: no entry is stored.
//	400       Either the request could not be parsed, or some entries were refused and the
//	          others stored; only the text distinguishes them. An unknown text may not come
//	          from Loki; see session.Send.
//	413, 500  The request is larger than a component accepts. Also 429, if it is larger than
//	          the burst of the rate limit.
//	500       Also the response to metadata with the name "_". The entry is not stored, even
//	          if it is sent again.
//	429       The rate limit is reached at present, or there are too many streams.
//
// A 403 with a page is not from Loki. It may come from a firewall that rejects the text of an entry.
func (s *client) interpret(res *http.Response, text []byte, whole bool, size int, segs []segment, first int64) answer {
	status := res.StatusCode
	if status == http.StatusNoContent {
		return answer{}
	}
	message := secrets.Hide(strings.ToValidUTF8(string(bytes.TrimSpace(cutUTF8(text, 4<<10))), "\ufffd"), redactedMark, s.credentials()...)
	pe := &httpclient.Error{Package: "loki", Status: status, Message: httpsend.Printable(string(cutUTF8([]byte(message), 1<<10))), Labels: httpsend.Printable(segs[0].st.describe())}
	after := httpsend.RetryAfter(res.Header.Get("Retry-After"), time.Now())
	a := answer{err: pe, after: after}
	switch {
	case status == http.StatusBadRequest && whole && isForeign(res.Header, text):
		a.kind = hold
	case status == http.StatusBadRequest:
		if a.refusals, a.bySegment = parseRefusals(text, whole, segs); a.refusals != nil {
			a.kind = entriesRefused
		} else if labelsText().Match(text) {
			a.kind = labelsRefused
			if a.why = labelTooMany; bytes.Contains(text, []byte("too long")) {
				a.why = labelTooLong
			}
		} else if requestText().Match(text) {
			a.kind = requestRefused
		} else {
			a.kind = unknownText
		}
	case status == http.StatusUnprocessableEntity:
		a.kind = unknownText
	case status == http.StatusRequestEntityTooLarge:
		a.kind = tooLarge
		s.shrink(size, segs)
	case status == http.StatusTooManyRequests:
		switch {
		case bytes.Contains(text, []byte("stream limit exceeded")):
			a.kind, a.why = tooManyStreams, streamsFull
		case len(segs) > 1 && ofStream(text): // the rate limit of one of the streams
			a.kind, a.stream = limited, true
		case s.overBurst(text, size, segs, first, time.Now()):
			a.kind = tooLarge
		default:
			a = s.limitReached(a, text, segs, time.Now())
		}
	case status == http.StatusInternalServerError && isTooLarge(text):
		a.kind = tooLarge
		s.shrink(size, segs)
	case status == http.StatusInternalServerError && bytes.Contains(text, []byte("normalization for label name")):
		a.kind = requestRefused // Loki cannot store a metadata name; see metaName
	case httpsend.ServerFailed(status, after):
		a.kind = serverError
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusTooEarly:
		a.kind = tryAgain
	case status == http.StatusForbidden && len(text) > 0 && isForeign(res.Header, text):
		a.kind = unknownText
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == statusBlocked:
		a.kind = denied
	case status >= 300 && status < 400:
		pe.Message = "redirects are not followed; set url to the target"
		a.kind = hold
	default: // 404 and other statuses that a working Loki does not send
		a.kind = hold
	}
	return a
}

// isForeign reports whether a response with status 400 or 403 comes from a proxy or another server
// that has not read the entries. Loki's responses with these statuses have a plain text that
// describes the error.
func isForeign(h http.Header, text []byte) bool {
	text = bytes.TrimSpace(text)
	return len(text) == 0 || text[0] == '<' || strings.Contains(h.Get("Content-Type"), "html")
}

// statusBlocked is the status of a response to a tenant whose ingestion is blocked by an operator
// (limits_config.block_ingestion_status_code).
const statusBlocked = 260

// isTooLarge reports whether text is gRPC's error for a message that exceeds its size limit
// (server.grpc_server_max_recv_msg_size of an ingester).
func isTooLarge(text []byte) bool {
	return bytes.Contains(text, []byte("larger than max")) || bytes.Contains(text, []byte("ResourceExhausted"))
}
