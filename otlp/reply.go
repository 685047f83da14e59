package otlp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/httpsend"
)

// maxAnswer is the maximum length of a response in bytes. A longer response cannot be decoded and
// is treated like a missing one.
const maxAnswer = 16 << 20

// exchange sends the request in x.body, which contains b, and returns the outcome of the response (OTLP
// specification, OTLP/HTTP Response):
//
//	2xx        accepted; partial_success has the number of rejected records
//	400, 422   a record may be at fault: search for it, if the receiver accepts an earlier record again
//	403        the same, but a proxy may be at fault, too
//	others     see httpsend.Poster.Interpret
func (x *Driver) exchange(ctx context.Context, b *batch.Batch) batch.Outcome {
	a, err := x.post.Post(ctx, x.body)
	if err != nil {
		return httpsend.OutcomeOf(err)
	}
	if a.Status >= 200 && a.Status < 300 {
		return x.successOutcome(&a, b)
	}
	o, rejected := x.prober.Interpret(ctx, x.post, &a, a.HTML() || len(a.Text) == 0)
	if rejected {
		o = x.prober.Check(ctx, x.post, o)
	}
	return o
}

// successOutcome returns the outcome of a request with b, whose response a has a status 2xx.
func (x *Driver) successOutcome(a *httpsend.Answer, b *batch.Batch) batch.Outcome {
	n, message, ok := partial(a)
	switch {
	// The part that was not read may contain the number of rejected records.
	case !a.Whole:
		return batch.Outcome{Open: batch.All(), Why: x.post.NoAnswer(fmt.Sprintf("the answer has more than %d bytes", maxAnswer))}
	case !ok:
		err := x.post.Refusal(a.Status, answerText(a))
		err.Message = "the answer is not from an OTLP receiver; correct url: " + err.Message
		return batch.Outcome{Open: batch.All(), Why: err, Advice: batch.Hold}
	case n == 0 && message == "": // no partial_success, or an empty one
		return batch.Outcome{}
	}
	err := x.post.Refusal(a.Status, message)
	// Each record was rejected, so each one becomes a dead letter.
	if n >= uint64(b.Len()) {
		return batch.Outcome{Refused: batch.All(), Refusal: err}
	}
	if n > 0 {
		err.Message = fmt.Sprintf("%d of %d records refused without naming them: %s", n, b.Len(), err.Message)
	}
	// A message without a number of rejected records is a warning of the receiver.
	x.reports.Post("partial-success", err, n)
	return batch.Outcome{Unnamed: int(n), Refusal: err}
}

// accepts reports whether the response a shows that the receiver has accepted a request.
func accepts(a *httpsend.Answer) bool {
	_, _, ok := partial(a)
	return a.Status >= 200 && a.Status < 300 && ok
}

// partial parses an ExportLogsServiceResponse. It returns the number of rejected records and the
// message of the receiver. ok is false if the response is not valid. An empty response is valid:
// all records are accepted.
func partial(a *httpsend.Answer) (rejected uint64, message string, ok bool) {
	kind := a.Header.Get("Content-Type")
	switch {
	case !a.Whole || a.HTML():
		return 0, "", false
	case strings.Contains(kind, "json"):
		return partialJSON(a.Text)
	case kind == "" || strings.Contains(kind, "protobuf") || strings.Contains(kind, "octet-stream"):
		return partialProto(a.Text)
	}
	return 0, "", len(a.Text) == 0
}

// partialProto implements partial for a response in protobuf format.
func partialProto(b []byte) (rejected uint64, message string, ok bool) {
	for len(b) > 0 {
		tag, data, _, rest, ok := next(b)
		if !ok {
			return 0, "", false
		}
		b = rest
		if tag != tagPartial {
			if tag>>3 == tagPartial>>3 { // the field has a wrong wire type
				return 0, "", false
			}
			continue
		}
		for len(data) > 0 {
			tag, text, n, rest, ok := next(data)
			if !ok {
				return 0, "", false
			}
			switch data = rest; tag {
			case tagRejected:
				// The field is an int64, and a faulty receiver may send a negative number.
				rejected = uint64(max(int64(n), 0))
			case tagMessage:
				message = string(text)
			}
		}
	}
	return rejected, message, true
}

// Tags of the protobuf fields of a response
// (opentelemetry/proto/collector/logs/v1/logs_service.proto).
const (
	tagPartial  = 0x0a
	tagRejected = 0x08
	tagMessage  = 0x12
)

// partialJSON implements partial for a response in JSON format. In JSON, protobuf writes int64
// numbers as strings. Some receivers write a number instead.
func partialJSON(b []byte) (rejected uint64, message string, ok bool) {
	var r struct {
		PartialSuccess struct {
			RejectedLogRecords json.RawMessage `json:"rejectedLogRecords"` // a number or a string of digits
			ErrorMessage       string          `json:"errorMessage"`
		} `json:"partialSuccess"`
	}
	if b = bytes.TrimSpace(b); len(b) == 0 {
		return 0, "", true
	}
	if b[0] != '{' || json.Unmarshal(b, &r) != nil {
		return 0, "", false
	}
	// A missing or invalid number counts as 0, which is the default value of a number in protobuf.
	rejected, _ = strconv.ParseUint(strings.Trim(string(r.PartialSuccess.RejectedLogRecords), `"`), 10, 63)
	return rejected, r.PartialSuccess.ErrorMessage, true
}

// answerText returns the text of an error response: the message of a google.rpc.Status or, if the
// response is no Status, the whole response.
func answerText(a *httpsend.Answer) string {
	kind := a.Header.Get("Content-Type")
	switch {
	case strings.Contains(kind, "protobuf"):
		message := ""
		for b := a.Text; len(b) > 0; {
			tag, data, _, rest, ok := next(b)
			if !ok {
				break
			}
			if b = rest; tag == 0x12 { // message of google.rpc.Status
				message = string(data)
			}
		}
		return message
	case strings.Contains(kind, "json"):
		var s struct{ Message string }
		if json.Unmarshal(a.Text, &s) == nil && s.Message != "" {
			return s.Message
		}
	}
	return string(a.Text)
}
