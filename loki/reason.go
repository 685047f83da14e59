package loki

import (
	"fmt"
	"sync/atomic"
)

// A reason is a problem with a record that a [Driver] has found before or after sending it.
type reason uint8

// The reasons of the first group mean that the record was changed and delivered, and those of the
// second group that it was refused. reasonNames has the same order.
const (
	labelTooMany    reason = iota // the stream has MaxLabels labels: the label became metadata
	labelTooLong                  // the value is longer than MaxLabelValue: the label became metadata
	labelManyValues               // the label had more values than MaxLabelValues: the label became metadata
	restamped                     // the record got the current time because of TooOld "now"
	// streamsFull means that MaxStreams streams exist. Either the labels became metadata, or the
	// record was refused because its tenant is new.
	streamsFull
	metadataLeftOut // a pair of metadata exceeds MaxMetadataPairs or MaxMetadataBytes
	lineTruncated   // the line is longer than MaxLine and was cut
	// timeNotUnique means that another record may have the same time, despite UniqueTimes. Loki
	// keeps only one of two equal records.
	timeNotUnique

	lineTooLong  // the line is longer than MaxLine, or than Loki accepts
	tooOld       // the record is older than MaxAge, or than Loki accepts
	tooNew       // the time is further in the future than MaxFuture, or than Loki accepts
	tooFarBehind // the record is too much older than the newest entry of its stream, according to Loki
	badTenant    // the name of the tenant is invalid; the record was not sent
	malformed    // the record is not an entry, or its stream is unknown
	invalid      // Loki refused the record for another reason

	reasons = 15 // number of reasons
)

// reasonNames are the names of the reasons in [Stats] and events.
var reasonNames = [reasons]string{
	"label-too-many", "label-too-long", "label-values", "restamped", "streams-full", "metadata-left-out", "line-truncated", "time-not-unique",
	"line-too-long", "too-old", "too-new", "too-far-behind", "bad-tenant", "malformed", "invalid",
}

// String returns the name of the reason in Stats.ByReason and in events.
func (r reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason(%d)", r)
}

// counts contains a number for each reason.
type counts [reasons]uint64

// Stats are the counters of a [Driver] since its creation.
type Stats struct {
	// Requests is the number of requests, including repeated ones.
	Requests uint64
	// Failed is the number of requests that Loki did not accept completely, and of requests that
	// were not sent because of a rate limit.
	Failed uint64
	// Splits is the number of requests that were sent again in parts, because they were too large
	// or because Loki refused one of several streams.
	Splits uint64
	// Paced is the number of requests that waited because of a rate limit reported by Loki.
	Paced uint64
	// WireBytes is the total size of all request bodies as sent. BodyBytes is their total size
	// before compression.
	WireBytes uint64
	BodyBytes uint64
	// Streams is the number of streams, including those read from disk. Each combination of tenant
	// and labels is a stream.
	Streams int
	// LastError is the error text of the last failed request, without secrets. It is empty if no
	// request has failed.
	LastError string
	// Unreachable reports whether the last request had no response.
	Unreachable bool

	// ByReason counts records, labels and items of metadata by the problem found. Reasons
	// that did not occur are absent. The caller owns the map.
	//
	// The record was changed and delivered:
	//
	//	label-too-many     more labels than MaxLabels: the label became metadata
	//	label-too-long     the label is longer than MaxLabelValue and became metadata
	//	label-values       the label had more values than MaxLabelValues and became
	//	                   metadata
	//	restamped          with TooOld "now": the record has the present time
	//	streams-full       MaxStreams exist: the labels became metadata
	//	metadata-left-out  an item beyond MaxMetadataPairs or MaxMetadataBytes
	//	line-truncated     the line is longer than MaxLine and was cut
	//	time-not-unique    with UniqueTimes: the record may have the time of another one;
	//	                   if their lines are also equal, Loki may keep only one
	//
	// The record was refused:
	//
	//	line-too-long   longer than MaxLine, or than Loki accepts
	//	too-old         older than MaxAge, or than Loki accepts
	//	too-new         further in the future than MaxFuture, or than Loki accepts
	//	too-far-behind  too much older than the newest entry of its stream, according to Loki
	//	bad-tenant      the name of the tenant is invalid; the record was never sent
	//	streams-full    MaxStreams exist, and the tenant is new
	//	malformed       not an entry, or of an unknown stream
	//	invalid         Loki refused the record for another reason
	ByReason map[string]uint64
}

// The type observations counts records by reason. It is safe for concurrent use.
type observations [reasons]atomic.Uint64

// inc increments the counter of a reason.
func (n *observations) inc(r reason) { n[r].Add(1) }

// counts returns the current numbers.
func (n *observations) counts() (c counts) {
	for i := range n {
		c[i] = n[i].Load()
	}
	return c
}

// byReason returns the nonzero counts, by the name of the reason, in a new map.
func (c *counts) byReason() map[string]uint64 {
	m := map[string]uint64{}
	for r, n := range c {
		if n > 0 {
			m[reasonNames[r]] = n
		}
	}
	return m
}
