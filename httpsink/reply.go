package httpsink

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/internal/httpsend"
)

// errNotJSON is the error of records that httpsink itself refuses, and errOtherRefused the error of
// the other records in the batch, which are sent again.
var (
	errNotJSON      = errors.New("httpsink: cannot send a record that is not JSON; use a JSON encoder, or the codec of the lines")
	errOtherRefused = errors.New("httpsink: another record of the request was refused; this one is sent again without it")
)

// exchange sends the request in d.body, which contains b, and returns the outcome of the response:
//
//	2xx        accepted; for elasticsearch and hec the body has details
//	400, 422   a record may be at fault: search for it, if the server accepts an earlier record again
//	403        the same, but a proxy may be at fault, too
//	others     see httpsend.Poster.Interpret
func (d *Driver) exchange(ctx context.Context, b *batch.Batch) batch.Outcome {
	a, err := d.post.Post(ctx, d.body)
	if err != nil {
		return httpsend.OutcomeOf(err)
	}
	if a.Status >= 200 && a.Status < 300 {
		switch {
		case d.c.api.bulk:
			return d.bulkOutcome(ctx, &a, b)
		case !d.accepts(&a):
			return d.notFromAPI(&a)
		}
		d.keep(b, 0)
		return batch.Outcome{}
	}
	o, rejected := d.prober.Interpret(ctx, d.post, &a, isPage(&a) || len(bytes.TrimSpace(a.Text)) == 0)
	if !rejected {
		return o
	}
	if bad := d.framer.notJSON(b); bad != nil {
		return refused(bad, b.Len(), errNotJSON)
	}
	if !d.c.api.hec {
		return d.prober.Check(ctx, d.post, o)
	}
	i, ok := hecRefused(&a)
	if !ok || i >= b.Len() {
		return o
	}
	if o = d.prober.Check(ctx, d.post, o); o.Advice == batch.Search {
		return refused([]int{i}, b.Len(), o.Why)
	}
	return o
}

// refused returns the outcome of a batch of n records. It refuses the records whose indexes are in
// bad, which must be sorted, with the reason why. All other records are sent again.
func refused(bad []int, n int, why error) batch.Outcome {
	o := batch.Outcome{Refused: batch.Of(bad...), Refusal: why}
	if len(bad) < n {
		var rest []int
		for i := range n {
			if _, is := slices.BinarySearch(bad, i); !is {
				rest = append(rest, i)
			}
		}
		o.Open, o.Why = batch.Of(rest...), errOtherRefused
	}
	return o
}

// notFromAPI returns the outcome for a success response that a server with the configured API does
// not send. The records are held, because the URL or the API is probably wrong.
func (d *Driver) notFromAPI(a *httpsend.Answer) batch.Outcome {
	err := d.post.Refusal(a.Status, answerText(a))
	err.Message = "the answer is not from " + d.c.api.name + "; correct url or api: " + err.Message
	return batch.Outcome{Open: batch.All(), Why: err, Advice: batch.Hold}
}

// accepts reports whether the response a shows that the server accepts records. The request was a
// test and contained one record or none.
func (d *Driver) accepts(a *httpsend.Answer) bool {
	switch {
	case isPage(a):
		return false
	case d.c.api.hec:
		return a.Status == http.StatusOK && hecCode(a) == 0 || a.Status == http.StatusBadRequest && hecCode(a) == hecNoData
	case a.Status < 200 || a.Status >= 300:
		return false
	case d.c.api.bulk:
		return a.Whole && d.bulk.read(a.Text) == nil && len(d.bulk.Items) == 1 && d.bulk.Items[0].isAccepted(true)
	}
	return true
}

// Codes in responses of Splunk (Troubleshoot HTTP Event Collector, "Possible error codes").
const (
	hecNoData       = 5
	hecInvalidData  = 6
	hecEventMissing = 12
	hecEventBlank   = 13
	hecBadFields    = 15
)

// hecCode returns the code in a response of Splunk, or -1 if the response contains no code.
func hecCode(a *httpsend.Answer) int {
	var r struct{ Code *int }
	if json.Unmarshal(a.Text, &r) != nil || r.Code == nil {
		return -1
	}
	return *r.Code
}

// isPage reports whether a response is an HTML page, such as the login page of a proxy. It ignores
// the header Content-Type, because some servers declare any text as HTML.
func isPage(a *httpsend.Answer) bool { return bytes.HasPrefix(bytes.TrimSpace(a.Text), []byte("<")) }

// hecRefused returns the index of the first event that Splunk refuses. ok is false if the error
// does not concern a single event, for example if the index is missing.
func hecRefused(a *httpsend.Answer) (i int, ok bool) {
	var r struct {
		Event *int `json:"invalid-event-number"`
	}
	if json.Unmarshal(a.Text, &r) != nil || r.Event == nil || *r.Event < 0 {
		return 0, false
	}
	switch hecCode(a) {
	case hecInvalidData, hecEventMissing, hecEventBlank, hecBadFields:
		return *r.Event, true
	}
	return 0, false
}

// answerText returns the message of an error response: the reason that Elasticsearch gives or the
// text that Splunk gives. For other servers, it returns the whole response.
func answerText(a *httpsend.Answer) string {
	var s struct {
		Error json.RawMessage
		Text  string
	}
	if json.Unmarshal(a.Text, &s) == nil {
		if s.Text != "" {
			return s.Text
		}
		if e := readError(s.Error); e.Type != "" {
			return e.text()
		}
	}
	return string(a.Text)
}

// A bulkError is an error in a response of the bulk API.
type bulkError struct {
	Type, Reason string
	Cause        struct{ Reason string } `json:"caused_by"`
}

// readError parses an error of the bulk API. It may be an object, a string or any other JSON value.
func readError(raw json.RawMessage) (e bulkError) {
	if json.Unmarshal(raw, &e) != nil {
		e = bulkError{}
		if json.Unmarshal(raw, &e.Reason) != nil {
			e.Reason = string(raw)
		}
	}
	return e
}

// text returns the type and the reasons of e, separated by colons.
func (e *bulkError) text() string {
	parts := slices.DeleteFunc([]string{e.Type, e.Reason, e.Cause.Reason}, func(s string) bool { return s == "" })
	return strings.Join(parts, ": ")
}

// aboutContent reports whether the record was rejected because of its content, regardless of the
// state of the server.
func (e *bulkError) aboutContent() bool {
	switch e.Type {
	case "mapper_parsing_exception", "document_parsing_exception", "strict_dynamic_mapping_exception":
		return true
	}
	return false
}

// A bulkAnswer is the response of Elasticsearch to a request of the bulk API.
type bulkAnswer struct {
	Errors *bool
	Items  []bulkItem
}

// A bulkItem is the result of one record in a bulkAnswer.
type bulkItem struct {
	Create struct {
		Status int
		Error  json.RawMessage
	}
}

// isAccepted reports whether the record is stored. If the request contained the _id of the record
// (named is true), a conflict also means that the record is stored.
func (i *bulkItem) isAccepted(named bool) bool {
	s := i.Create.Status
	return s >= 200 && s < 300 || s == http.StatusConflict && named
}

// read parses a response. It reuses the memory of the previous response.
func (a *bulkAnswer) read(text []byte) error {
	clear(a.Items[:cap(a.Items)])
	a.Errors, a.Items = nil, a.Items[:0]
	return json.Unmarshal(text, a)
}

// bulkOutcome returns the outcome of a request with b. a is the response of the bulk API, with a
// result for each record.
func (d *Driver) bulkOutcome(ctx context.Context, a *httpsend.Answer, b *batch.Batch) batch.Outcome {
	n := b.Len()
	if isPage(a) {
		return d.notFromAPI(a)
	}
	none := func(message string) batch.Outcome {
		return batch.Outcome{Open: batch.All(), Why: d.post.NoAnswer(message)}
	}
	if !a.Whole {
		o := none("the answer has more than 16 MiB")
		if n > 1 {
			o.Advice = batch.Smaller // a smaller request has a smaller response
		}
		return o
	}
	if err := d.bulk.read(a.Text); err != nil {
		if isTruncated(err) {
			return none("the answer is truncated")
		}
		return d.notFromAPI(a)
	}
	items := d.bulk.Items
	switch {
	// A response without results and without errors is not a response of the bulk API.
	case len(items) == 0 && (d.bulk.Errors == nil || !*d.bulk.Errors):
		return d.notFromAPI(a)
	case len(items) != n:
		return none("the answer has a different number of records")
	}
	v := bulkReading{d: d, a: a, b: b, named: d.framer.named(b)}
	for i := range items {
		v.item(i, &items[i])
	}
	return v.outcome(ctx)
}

// isTruncated reports whether err means that a JSON text ends too early.
func isTruncated(err error) bool {
	var syntax *json.SyntaxError
	return errors.As(err, &syntax) && syntax.Error() == "unexpected end of JSON input"
}

// A bulkReading collects the results in a bulkAnswer and determines the outcome of the batch.
type bulkReading struct {
	d     *Driver
	a     *httpsend.Answer
	b     *batch.Batch
	named bool // the records were sent with their names as _id

	accepted    int               // number of accepted records
	acceptedAt  int               // index of the last accepted record
	open        []int             // indexes of records to send again
	why         *httpclient.Error // error of the first record in open
	hold        bool              // at least one error requires a change of configuration
	refused     []int             // indexes of refused records
	reasons     refusals          // errors of the refused records, in the order of refused
	contentOnly bool              // every refused record has an error about its content
}

// item adds the result of record i.
func (v *bulkReading) item(i int, result *bulkItem) {
	s := result.Create.Status
	if result.isAccepted(v.named) {
		if s == http.StatusConflict {
			v.d.duplicates.Add(1)
		}
		v.acceptedAt = i
		v.accepted++
		return
	}
	e := readError(result.Create.Error)
	err := v.d.post.Refusal(s, e.text())
	switch s {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusConflict:
		v.hold = true
	case http.StatusTooManyRequests, http.StatusRequestTimeout:
	default:
		if s >= 400 && s < 500 {
			v.contentOnly = (v.contentOnly || v.refused == nil) && e.aboutContent()
			v.refused = append(v.refused, i)
			v.reasons = append(v.reasons, err)
			return
		}
		if s < 500 {
			err = v.d.post.NoAnswer("the answer has no status for a record")
		}
	}
	if v.why == nil {
		v.why = err
	}
	v.open = append(v.open, i)
}

// outcome returns the outcome of the batch. If the server has accepted no record, either the
// records or the server may be at fault. The records are refused if every error is about their
// content, or if the server now accepts a copy of an earlier record. Otherwise they are held.
func (v *bulkReading) outcome(ctx context.Context) batch.Outcome {
	if v.accepted > 0 {
		v.d.keep(v.b, v.acceptedAt)
	}
	o := batch.Outcome{Open: batch.Of(v.open...), After: v.a.After}
	if v.why != nil {
		o.Why = v.why
	}
	if v.hold {
		o.Advice = batch.Hold
	}
	if v.refused == nil {
		return o
	}
	if v.accepted == 0 && !v.contentOnly {
		held := batch.Outcome{Open: batch.All(), Why: v.reasons[0], Advice: batch.Hold}
		if held = v.d.prober.Ask(ctx, v.d.post, held); held.Advice != batch.Search {
			return held
		}
	}
	o.Refused, o.Refusal = batch.Of(v.refused...), v.reasons
	return o
}

// refusals are the errors of refused records, in the order of the records.
type refusals []*httpclient.Error

// Error returns the text of the first error.
func (r refusals) Error() string { return r[0].Error() }

// Unwrap returns the first error, which has the HTTP status.
func (r refusals) Unwrap() error { return r[0] }

// DeadLetterCause returns the error of the kth refused record, from 0, for its dead letter. It is
// called by package deliver.
func (r refusals) DeadLetterCause(k int) error { return r[k] }
