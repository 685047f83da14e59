package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/backoff"
)

// A session is one idempotent producer of Kafka: broker and session agree on a sequence number for
// each partition, and the broker stores a Kafka batch only once. Send, which the outlet calls,
// divides batches into pieces. The goroutine of run owns the partition queues, the sequence numbers
// and the answers. Each request runs in a goroutine, which passes the response to run.
//
//	sending ──a record cannot be stored──▶ failing ──no request is in flight──▶ ended
//	   └───────────────────────── the context ends ────────────────────────────▲
//
// A failing session sends nothing. Otherwise a record could be stored before an earlier record of
// its partition that must be sent again.
type session struct {
	d *Driver
	// life receives the answers to batches and the end of the session.
	life   deliver.Life
	ctx    context.Context    // ends with the session
	stop   context.CancelFunc // ends ctx and closes cl
	cl     *kgo.Client
	pid    int64   // producer id
	epoch  int16   // epoch of the producer id
	packer *packer // used only by Send

	in        chan *pending // batches from Send; the capacity is Window, so that Send does not wait
	results   chan result   // results from the goroutines of request
	refreshed chan error    // results from the goroutine of refreshLeaders
	done      chan struct{} // closed when run has returned
	// calls counts the goroutines that the methods request and refreshLeaders have started.
	calls sync.WaitGroup

	mu     sync.Mutex // guards topics; no other lock is acquired while it is held
	topics map[string]*topic

	// Only run uses the following fields.
	repack     *packer // packs the records of divided pieces
	queues     map[topicPartition]*partitionQueue
	busy       []*partitionQueue // partition queues that have pieces
	open       []*pending        // batches without an answer
	inFlight   map[int32]bool    // brokers with a request in flight, by node id
	refreshing bool              // the goroutine of refreshLeaders is running
	failing    *failure          // reason for ending the session; nil while sending
	deferred   int               // number of suspects in this session whose later records were sent first
}

// A pending is a batch that has no answer yet.
type pending struct {
	b         *batch.Batch
	pieces    []*piece // created by Send and passed to run
	unsettled int      // number of pieces that are not settled
	refused   []int    // indexes of refused records
	refusal   error    // reason for refusing the records in refused
	// If the batch could not be divided into pieces, failed is the error.
	failed error
}

// A partitionQueue contains the pieces for one partition, in order. Only its first piece, the head,
// may be in flight, so a piece that is not stored blocks the pieces after it.
type partitionQueue struct {
	at    topicPartition
	seq   int32 // sequence number of the first record of the head
	queue []*piece
	sent  bool // the head is in flight
	// waiting reports that the head is sent again after the next result of refreshLeaders.
	waiting bool
	tries   int       // failed attempts of the head
	since   time.Time // time of the first failed attempt of the head
	first   error     // error of the first failed attempt of the head; it names the broker
}

// resetAttempts restarts the count of failed attempts, for a new head.
func (l *partitionQueue) resetAttempts() { l.tries, l.since, l.first = 0, time.Time{}, nil }

// A failure is the reason why a session ends. advice applies to all records of the session that are
// not settled.
type failure struct {
	err    error
	advice batch.Advice
}

// A result is a broker's response to a produce request that contained the head of each of queues.
type result struct {
	node   int32
	queues []*partitionQueue
	resp   *kmsg.ProduceResponse // nil if err is not nil
	err    error
}

// errEnded is the error that Send returns after run has returned.
var errEnded = errors.New("kafka: the session has ended")

// newSession returns a session that has no producer id yet. ctx is the context of the session, and
// cancel ends it.
func newSession(d *Driver, l deliver.Life, ctx context.Context, cancel context.CancelFunc) *session {
	s := &session{
		d: d, life: l, ctx: ctx, packer: newPacker(d), repack: newPacker(d),
		in: make(chan *pending, d.c.Window), results: make(chan result), refreshed: make(chan error), done: make(chan struct{}),
		topics: map[string]*topic{}, queues: map[topicPartition]*partitionQueue{}, inFlight: map[int32]bool{},
	}
	s.stop = func() {
		cancel()
		if s.cl != nil {
			s.cl.Close()
		}
	}
	return s
}

// Send divides b into pieces for its partitions and passes them to run. For the first record of a
// topic, Send requests the metadata of the topic and waits for the response. It implements
// [deliver.Session].
func (s *session) Send(b *batch.Batch) error {
	p := &pending{b: b}
	p.pieces, p.failed = s.packer.pack(nil, p, nil, s.partitions)
	// If b could not be divided, it is still passed to run, because run reports the outcome of all
	// batches in order when it ends the session.
	select {
	case s.in <- p:
		return nil
	case <-s.done:
		return errEnded
	}
}

// partitions returns the number of partitions of a topic. It requests the metadata of the topic if
// the session does not have it.
func (s *session) partitions(topic string) (int, error) {
	t, err := s.topic(topic)
	if err != nil {
		return 0, err
	}
	return len(t.leaders), nil
}

// Close ends the session. When it returns, no goroutine of the session is running. It implements
// [deliver.Session].
func (s *session) Close() {
	s.stop()
	<-s.done
	s.calls.Wait()
	s.d.connected.Store(false)
}

// run sends the pieces and reports the outcome of each batch, until the context ends or the session
// has failed. It is the only goroutine that uses the partition queues.
func (s *session) run() {
	defer close(s.done)
	for {
		if s.failing == nil {
			s.dispatch()
		}
		// The responses to requests in flight show which records are stored, so run waits for them
		// before it ends the session.
		if s.failing != nil && len(s.inFlight) == 0 {
			s.end()
			return
		}
		select {
		case <-s.ctx.Done():
			return
		case p := <-s.in:
			s.accept(p)
		case r := <-s.results:
			s.result(r)
		case err := <-s.refreshed:
			s.leadersRefreshed(err)
		}
	}
}

// accept adds the pieces of p to their partition queues.
func (s *session) accept(p *pending) {
	s.open = append(s.open, p)
	if p.failed != nil {
		s.fail(&failure{err: p.failed, advice: adviceFor(p.failed)})
		return
	}
	// busy contains the partition queues that have pieces. Its order determines the order of the
	// partitions in requests.
	p.unsettled = len(p.pieces)
	for _, q := range p.pieces {
		l := s.queues[q.at]
		if l == nil {
			l = &partitionQueue{at: q.at}
			s.queues[q.at] = l
		}
		if len(l.queue) == 0 {
			s.busy = append(s.busy, l)
		}
		l.queue = append(l.queue, q)
	}
	if p.unsettled == 0 { // the batch is empty
		s.answer(p)
	}
}

// dispatch sends the heads of partition queues to their leaders. Each broker without a request in
// flight gets one request.
func (s *session) dispatch() {
	var heads map[int32][]*partitionQueue
	var sizes map[int32]int
	for _, l := range s.busy {
		if l.sent || l.waiting {
			continue
		}
		node, _ := s.leader(l.at)
		if node < 0 { // the partition has no leader, or its topic has no metadata
			s.retry(l, errNoLeader)
			continue
		}
		// The head remains in its queue if its broker has a request in flight, or if the request
		// would become too large. A request with a single head may exceed the limit.
		size := len(l.queue[0].buf)
		if s.inFlight[node] || sizes[node] > 0 && sizes[node]+size > requestBytes {
			continue
		}
		if heads == nil {
			heads, sizes = map[int32][]*partitionQueue{}, map[int32]int{}
		}
		heads[node] = append(heads[node], l)
		sizes[node] += size
	}
	for node, queues := range heads {
		s.request(node, queues)
	}
	s.refreshLeaders()
}

// requestBytes limits the size of a request, in bytes. It is below the default of a broker's
// socket.request.max.bytes, 100 MiB.
const requestBytes = 16 << 20

// errNoLeader is the reason for sending records again if their partition has no leader in the
// metadata.
var errNoLeader = errors.New("the partition has no leader now")

// request sends a produce request with the head of each of queues to the broker with the id node.
// It does not wait: a goroutine passes the result to s.results.
func (s *session) request(node int32, queues []*partitionQueue) {
	req := kmsg.NewPtrProduceRequest()
	req.Acks = -1 // acks=all: every in-sync replica has the records
	req.TimeoutMillis = int32(s.d.c.RequestTimeout.Milliseconds())
	for _, l := range queues {
		// A piece that is sent again keeps its sequence number, because l.seq changes only when the
		// head is stored.
		q := l.queue[0]
		stamp(q.buf, s.pid, s.epoch, l.seq)
		l.sent = true
		_, id := s.leader(l.at)
		// From version 13 on, requests and responses identify a topic by its id.
		i := slices.IndexFunc(req.Topics, func(t kmsg.ProduceRequestTopic) bool { return t.Topic == l.at.topic })
		if i < 0 {
			t := kmsg.NewProduceRequestTopic()
			t.Topic, t.TopicID = l.at.topic, id
			i, req.Topics = len(req.Topics), append(req.Topics, t)
		}
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = l.at.partition, q.buf
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
	}
	s.inFlight[node] = true
	// The goroutine uses only req. It must not access the contents of queues, which run owns.
	s.calls.Go(func() {
		r := result{node: node, queues: queues}
		var resp kmsg.Response
		if resp, r.err = s.cl.Broker(int(node)).Request(s.ctx, req); r.err == nil {
			r.resp = resp.(*kmsg.ProduceResponse)
		}
		if r.err != nil {
			r.err = fmt.Errorf("broker %d: %w", node, s.d.hide(r.err))
		}
		select {
		case s.results <- r:
		case <-s.ctx.Done():
		}
	})
}

// result handles the response of a broker. If there is no response, r.err is the error.
func (s *session) result(r result) {
	delete(s.inFlight, r.node)
	for _, l := range r.queues {
		l.sent = false
		q := l.queue[0]
		if r.err != nil {
			q.unsure = true // the broker may have stored the piece before the connection failed
			if isFatal(r.err) {
				s.fail(&failure{err: r.err, advice: batch.Hold})
			} else {
				s.retry(l, r.err)
			}
			continue
		}
		_, id := s.leader(l.at)
		s.handleAnswer(l, q, partitionOf(r.resp, l.at, id))
	}
}

// partitionOf returns the part of resp for the given partition, or nil if resp has no such part.
// The parameter id is the id of the topic.
func partitionOf(resp *kmsg.ProduceResponse, at topicPartition, id [16]byte) *kmsg.ProduceResponseTopicPartition {
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if resp.Version < 13 && t.Topic != at.topic || resp.Version >= 13 && t.TopicID != id {
			continue
		}
		for j := range t.Partitions {
			if t.Partitions[j].Partition == at.partition {
				return &t.Partitions[j]
			}
		}
	}
	return nil
}

// stored handles q, the head of the queue l, after the broker has stored it. Its records are
// settled, and the sequence number of the partition advances.
func (s *session) stored(l *partitionQueue, q *piece) {
	// Sequence numbers count records, not Kafka batches. The record of a reference piece counts,
	// too.
	l.seq = sequenceAfter(l.seq, len(q.recs))
	if q.reference {
		s.referenceStored(l)
		return
	}
	s.d.records.Add(uint64(len(q.recs)))
	s.keep(l, q)
	if len(q.named) > 0 {
		s.refuse(q.of, q.named, q.reason)
	}
	s.settle(l, q)
}

// settle removes q, the head of the queue l. If no other piece of its batch is unsettled, settle
// reports the outcome of the batch.
func (s *session) settle(l *partitionQueue, q *piece) {
	s.shift(l)
	if q.of.unsettled--; q.of.unsettled == 0 {
		s.answer(q.of)
	}
}

// shift removes the head of the queue l and resets the count of attempts.
func (s *session) shift(l *partitionQueue) {
	l.resetAttempts()
	l.queue[0] = nil
	if l.queue = l.queue[1:]; len(l.queue) == 0 {
		l.queue = nil
		s.busy = slices.DeleteFunc(s.busy, func(o *partitionQueue) bool { return o == l })
	}
}

// refuse adds the given indexes to the refused records of p. why is the reason.
func (s *session) refuse(p *pending, recs []int32, why error) {
	for _, i := range recs {
		p.refused = append(p.refused, int(i))
	}
	p.refusal = s.d.describe("a record is refused", why)
	s.d.refused.Add(uint64(len(recs)))
}

// replace replaces q, the head of the queue l, with new pieces. Each of parts is a list of record
// indexes and becomes at least one piece. The records in q.named are refused once the last of the
// new pieces is stored.
func (s *session) replace(l *partitionQueue, q *piece, parts ...[]int32) {
	// The new pieces are built from the records of the batch, whose memory is valid until its
	// outcome is reported.
	var pieces []*piece
	for _, recs := range parts {
		pieces, _ = s.repack.pack(pieces, q.of, recs, onePartition)
	}
	for _, r := range pieces {
		r.at = l.at
	}
	// A part may need several pieces, because the limit of the topic may have decreased.
	last := pieces[len(pieces)-1]
	last.named, last.reason = q.named, q.reason
	q.of.unsettled += len(pieces) - 1
	l.queue = slices.Concat(pieces, l.queue[1:])
	l.resetAttempts()
}

// retry marks the head of the queue l as waiting. It is sent again with the same sequence number
// after the next result of refreshLeaders. If Timeout has passed since the first failure, the
// session fails.
func (s *session) retry(l *partitionQueue, err error) {
	// Timeout counts from the first failure rather than the first attempt, because a slow response
	// is not a failure.
	now := time.Now()
	if l.tries++; l.since.IsZero() {
		l.since, l.first = now, err
	}
	if now.Sub(l.since) > s.d.c.Timeout {
		// The first error names the broker. Later errors may come from a request for the leaders
		// and name no broker.
		if first := l.first; first.Error() != err.Error() {
			err = fmt.Errorf("%w; later: %w", first, err)
		}
		s.fail(&failure{err: fmt.Errorf("partition %d of topic %s: not stored for %s: %w",
			l.at.partition, l.at.topic, s.d.c.Timeout, err)})
		return
	}
	s.d.resent.Add(1)
	l.waiting = true
}

// refreshLeaders starts a goroutine that requests the leaders of the waiting partition queues, if
// there are any. The goroutine first waits for a delay that grows with the attempts. Only one such
// goroutine runs at a time.
func (s *session) refreshLeaders() {
	if s.refreshing || s.failing != nil {
		return
	}
	var names []string
	tries := 0
	for _, l := range s.busy {
		if l.waiting {
			tries = max(tries, l.tries)
			if !slices.Contains(names, l.at.topic) {
				names = append(names, l.at.topic)
			}
		}
	}
	if len(names) == 0 {
		return
	}
	// The delay depends on the queue with the most attempts. It doubles with each attempt, from 10
	// ms to 1 s.
	s.refreshing = true
	s.calls.Go(func() {
		ceil := backoff.Ceil(10*time.Millisecond, time.Second, tries)
		if !s.pause(backoff.Jitter(ceil/2, ceil)) {
			return
		}
		_, err := s.refresh(names)
		select {
		case s.refreshed <- err:
		case <-s.ctx.Done():
		}
	})
}

// leadersRefreshed handles the result of refreshLeaders. The waiting partition queues are sent
// again. After an error, they wait for the next result.
func (s *session) leadersRefreshed(err error) {
	s.refreshing = false
	for _, l := range slices.Clone(s.busy) {
		switch {
		case !l.waiting:
		case err == nil: // dispatch marks a partition without a leader as waiting again
			l.waiting = false
		case isFatal(err):
			s.fail(&failure{err: err, advice: batch.Hold})
		default:
			s.retry(l, err)
		}
	}
}

// answer reports to the outlet that all records of p are settled or refused.
func (s *session) answer(p *pending) {
	s.open = slices.DeleteFunc(s.open, func(o *pending) bool { return o == p })
	slices.Sort(p.refused)
	s.life.Answer(p.b, batch.Outcome{Refused: batch.Of(p.refused...), Refusal: p.refusal})
}

// fail sets f as the reason why the session ends, unless there already is a reason.
func (s *session) fail(f *failure) {
	if s.failing == nil {
		s.failing = f
	}
}

// end reports the outcome of all batches and ends the session. Records not known to be stored are
// open, which means that the outlet sends them again. If the broker may have stored open records of
// a batch, the reason in the outcome of the batch wraps batch.ErrUnanswered.
func (s *session) end() {
	f := s.failing
	// For each batch, left contains the indexes of the records that must be sent again, and unsure
	// reports whether the broker may have stored one of them.
	left, unsure := map[*pending][]int{}, map[*pending]bool{}
	for _, l := range s.busy {
		for _, q := range l.queue {
			for _, i := range slices.Concat(q.recs, q.named) {
				left[q.of] = append(left[q.of], int(i))
			}
			unsure[q.of] = unsure[q.of] || q.unsure
		}
	}
	why := s.d.describe("cannot store", f.err)
	for _, p := range s.open {
		// A batch that could not be divided into pieces must be sent again as a whole.
		o := batch.Outcome{Open: batch.All(), Why: why}
		if p.failed == nil {
			open := left[p]
			slices.Sort(open)
			slices.Sort(p.refused)
			o.Open, o.Refused, o.Refusal = batch.Of(open...), batch.Of(p.refused...), p.refusal
		}
		o.Advice = f.advice
		if unsure[p] {
			o.Why = fmt.Errorf("%w (%w)", why, batch.ErrUnanswered)
		}
		s.life.Answer(p.b, o)
	}
	// Life.End gets no error, because the outcomes contain the reason and the advice.
	s.life.End(nil)
}
