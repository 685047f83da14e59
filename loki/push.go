package loki

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// An outcome is the result of a Send for one record.
type outcome uint8

const (
	open    outcome = iota // neither stored nor refused: may be sent again
	stored                 // Loki has stored it
	refused                // Loki will never accept it
)

// An answerKind is what a response means for the records of its request.
type answerKind uint8

const (
	accepted    answerKind = iota // all entries are stored
	tryAgain                      // no entry is stored, but the request may succeed later
	serverError                   // like tryAgain, but an entry may be the cause
	// limited means that no entry is stored because of a rate limit of the tenant or the stream.
	limited
	unanswered // the outcome is unknown, because there is no complete response
	hold       // no entry is stored until an operator intervenes
	// denied is like hold. If Loki refuses only this tenant, other tenants are not affected.
	denied
	tooLarge       // the request is too large; parts of it may be accepted
	tooManyStreams // Loki has no room for the stream, because of a limit of streams
	labelsRefused  // the labels of the stream are refused, and therefore all its entries
	entriesRefused // some entries are refused, the others are stored
	requestRefused // the whole request is refused, possibly because of one entry
	// unknownText is like requestRefused, but the text may come from another server or a faulty
	// Loki.
	unknownText
)

// An answer is an interpreted response of Loki. The zero answer means that all entries are stored.
type answer struct {
	kind     answerKind
	err      error         // nil if accepted
	after    time.Duration // minimum delay before the next attempt, from Retry-After; 0 if absent
	refusals *refusalText  // for entriesRefused: all refusals
	// bySegment contains the refusals for each segment, if the request has several segments and the
	// kind is entriesRefused. It is nil if a refusal cannot be assigned to a segment.
	bySegment []*refusalText
	why       reason // for tooManyStreams and labelsRefused
	stream    bool   // for limited: the limit applies to the stream, not the tenant
}

// A rec is one record of the batch that is being sent. It is valid until Send returns.
type rec struct {
	data []byte // belongs to the batch
	// time is the time of the entry, in Unix ns.
	time  int64
	line  int32 // length of the line in bytes; -1 if data is not an entry
	group int32 // index in push.groups; -1 if the record was refused before sending
	next  bool  // data directly follows the data of the previous record in memory
}

// A group contains the records of one stream in the batch that is being sent. Different groups have
// different streams.
type group struct {
	st        *stream
	level     int     // level of its first record
	order     []int32 // indexes in push.recs, sorted by time
	bytes     int     // size of the entries, in bytes
	place     place
	openCause answer // why records remain open; its kind is accepted if no record does
}

// size returns the size of g in a request, in bytes, as Loki may count it.
func (g *group) size() int { return g.bytes + len(g.st.labels) + entryExtra*len(g.order) }

// entryExtra is the number of bytes that Loki may add to an entry before it checks limits. Loki
// adds the metadata detected_level.
const entryExtra = 40

// minRequestLimit is a request size, in bytes, that every server is assumed to accept.
const minRequestLimit = 4 << 10

// A place determines whether the records of a group may share a request with other streams.
type place uint8

const (
	alone  place = iota // in requests without other streams
	shares              // may be in a request with other streams
	placed              // already added to a request with other streams
)

// A segment contains the entries of one stream in one request.
type segment struct {
	st    *stream // the stream of the entries, or the spare stream to which they were moved
	level int     // level of the first record of the group
	order []int32 // part of g.order
	g     *group
}

// entriesOf returns the number of entries in segs.
func entriesOf(segs []segment) (n int) {
	for _, s := range segs {
		n += len(s.order)
	}
	return n
}

// A push is the state of one call of Send, and is reused by later calls. Each of the concurrent
// requests changes only those elements of recs, outcomes, groups and order that belong to its own
// streams. mu guards the fields below it.
type push struct {
	form        form
	recs        []rec     // in the order of the batch
	outcomes    []outcome // by index of the record
	groups      []group
	order       []int32          // memory of group.order of all groups
	groupOf     map[uint32]int32 // index in groups by stream id
	segs        []segment        // of all requests, concatenated
	requestEnds []int            // end of each request in segs

	mu           sync.Mutex
	firstRefusal error            // error of the first refused record
	errByReason  map[reason]error // error of the first record refused for each reason
	reasonOf     map[int32]reason // reason of each refused record, by index
	// noDeadLetter contains the refused records that do not become dead letters, because of TooOld
	// "drop".
	noDeadLetter map[int32]bool
	restamped    map[int32]bool        // records that got the current time
	movedKeys    map[int32][]recordKey // keys of a record in client.moves, removed when its outcome is known
}

// newPush returns an empty push.
func newPush() *push { return &push{groupOf: map[uint32]int32{}} }

// sort sorts record indexes by time. Records with the same time are in the order of the batch. Most
// groups are already sorted, so this is checked first.
func (p *push) sort(order []int32) {
	for i := 1; i < len(order); i++ {
		if p.recs[order[i]].time < p.recs[order[i-1]].time {
			slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(p.recs[a].time, p.recs[b].time) })
			return
		}
	}
}

// remember stores k, a key of client.moves for record i. When the record is stored or refused,
// forgetMove removes the key.
func (p *push) remember(i int32, k recordKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.movedKeys == nil {
		p.movedKeys = map[int32][]recordKey{}
	}
	p.movedKeys[i] = append(p.movedKeys[i], k)
}

// isAgeReason reports whether a reason refers to the age of a record.
func isAgeReason(r reason) bool { return r == tooOld || r == tooFarBehind }

// isRestamped reports whether record i got the current time in this call of Send. Such a record
// does not get the current time again. Otherwise a faulty server could cause an endless loop.
func (p *push) isRestamped(i int32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.restamped[i]
}

// refusal returns the refused records and their error. The error is a *refusals if the records have
// different reasons, or if some of them must not become dead letters.
func (p *push) refusal() (batch.Set, error) {
	all := p.indexes(refused)
	if len(p.noDeadLetter) == 0 && len(p.errByReason) == 1 {
		return batch.Of(all...), p.firstRefusal
	}
	e := &refusals{error: p.firstRefusal, errs: make([]error, len(all))}
	for k, i := range all {
		if !p.noDeadLetter[int32(i)] {
			e.errs[k] = p.errByReason[p.reasonOf[int32(i)]]
		}
	}
	return batch.Of(all...), e
}

// The type refusals is the error of refused records that have several reasons, or of which some
// must not become dead letters.
type refusals struct {
	error         // of the first refused record
	errs  []error // by the position among the refused records; nil for a record that must not become a dead letter
}

// Unwrap returns the error of the first refused record.
func (e *refusals) Unwrap() error { return e.error }

// DeadLetterCause returns the error of refused record k, for its dead letter, or nil if the record
// must not become a dead letter. It is called by package deliver.
func (e *refusals) DeadLetterCause(k int) error {
	if k < len(e.errs) {
		return e.errs[k]
	}
	return e.error
}

// indexes returns the indexes of the records with the given outcome, in increasing order.
func (p *push) indexes(of outcome) []int {
	var out []int
	for i, f := range p.outcomes {
		if f == of {
			out = append(out, i)
		}
	}
	return out
}
