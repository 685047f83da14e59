// Package fromkafka reads topics of Kafka as a member of a consumer group.
//
// An offset is committed after all outputs have delivered or stored the records before it. While
// the outputs are full, at most one response per broker is buffered, and the member stays in the
// group. When a partition moves to another member, the offsets of records that are delivered within
// five seconds are committed. The new member reads the other records again.
package fromkafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/forebay-log/forebay/cmd/forebay-all/internal/commits"
	"github.com/forebay-log/forebay/cmd/internal/input"
	"github.com/forebay-log/forebay/dedup"
	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/internal/secrets"
	"github.com/forebay-log/forebay/kafka"
)

// Config configures a [Reader].
type Config struct {
	Kafka  kafka.Config // brokers, credentials and TLS
	Topics []string
	Group  string
	// Instance is the static name of this group member (group.instance.id). After a restart, a
	// member with a name gets its partitions back immediately. If a member without a name is
	// killed, its partitions are reassigned after the session timeout. Default: no name.
	Instance string
	FromEnd  bool     // start at the end if the group has no committed offsets
	Fields   []string // fields of a record in addition to the topic, see [Reader.attrs]
	Dedup    bool     // skip duplicates
}

// Check returns an error if c is invalid. It does not connect.
func (c *Config) Check() error {
	opts, err := c.options()
	if err == nil {
		err = kgo.ValidateOpts(opts...)
	}
	return err
}

// These are limits for fetches. At most one response per broker is in memory, in addition to the
// memory of the outputs.
const (
	fetchBytes     = 4 << 20 // compressed size; a larger batch is also fetched
	partitionBytes = 1 << 20
	pollRecords    = 1000
)

// maxUncommitted is the maximum number of records that were passed to the sink but whose offsets
// are not committed. After a crash, they are read again.
const maxUncommitted = 20_000

const (
	firstIdle      = 2 * time.Second // time without records before the brokers are probed for the first time
	laterIdle      = 15 * time.Second
	sessionTimeout = 15 * time.Second // a member without a heartbeat for this time is removed from the group
	commitTimeout  = 10 * time.Second // time limit for a commit
	leaveTimeout   = 2 * time.Second  // time limit for leaving the group
	revokeTimeout  = 5 * time.Second  // time limit for the commit before a partition moves to another member
)

func (c *Config) options() ([]kgo.Opt, error) {
	opts, err := c.Kafka.ClientOptions()
	if err != nil {
		return nil, err
	}
	begin := kgo.NewOffset().AtStart()
	if c.FromEnd {
		begin = kgo.NewOffset().AtEnd()
	}
	if c.Instance != "" {
		opts = append(opts, kgo.InstanceID(c.Instance))
	}
	return append(opts,
		kgo.SessionTimeout(sessionTimeout), kgo.FetchMaxWait(time.Second),
		kgo.ConsumerGroup(c.Group), kgo.ConsumeTopics(c.Topics...), kgo.ConsumeStartOffset(begin), kgo.DisableAutoCommit(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxBytes(fetchBytes), kgo.FetchMaxPartitionBytes(partitionBytes),
	), nil
}

// A topicPartition identifies a partition of a topic.
type topicPartition struct {
	topic     string
	partition int32
}

// A Reader implements [input.Reader]. The Kafka client calls the methods setOwned and revoked on
// its goroutines.
type Reader struct {
	c         Config
	sink      commits.Sink
	cl        *kgo.Client
	ctx       context.Context // done after Stop
	stop      context.CancelFunc
	committer *commits.Committer

	reads, probes, stores commits.FailureLog

	committing sync.Mutex // held during commits of offsets; acquired before mu

	mu          sync.Mutex // guards the fields below; acquire no other lock while holding mu
	owned       map[topicPartition]bool
	next        map[topicPartition]kgo.EpochOffset // offsets after the records that were passed to the sink but not committed
	uncommitted int                                // number of these records
	closed      bool                               // Close has committed the last offsets
	connectErr  error                              // error of the last attempt to connect or authenticate
	room        chan struct{}                      // receives a value when uncommitted decreases or partitions are lost

	window *dedup.Window // detects duplicates; nil unless Config.Dedup is set; used only by Run
	rec    input.Record
	level  slog.Level
}

// New returns a Reader that joins the group.
func New(c Config, sink commits.Sink) (*Reader, error) {
	r := &Reader{
		c: c, sink: sink, owned: map[topicPartition]bool{}, next: map[topicPartition]kgo.EpochOffset{}, room: make(chan struct{}, 1),
		reads: commits.FailureLog{Sink: sink}, probes: commits.FailureLog{Sink: sink}, stores: commits.FailureLog{Sink: sink},
	}
	if c.Dedup {
		r.window = dedup.New(nil)
	}
	opts, err := c.options()
	if err != nil {
		return nil, err
	}
	r.ctx, r.stop = context.WithCancel(context.Background())
	r.cl, err = kgo.NewClient(append(opts, kgo.WithHooks(connectHook{r}),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, parts map[string][]int32) { r.setOwned(parts, true) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, parts map[string][]int32) { r.revoked(parts) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, parts map[string][]int32) { r.setOwned(parts, false) }),
	)...)
	if err != nil {
		return nil, err
	}
	r.committer = commits.Start(sink, time.Second, r.pending, r.commit)
	return r, nil
}

// Run reads until Stop is called or the sink returns an error.
func (r *Reader) Run() error {
	for idle := firstIdle; ; {
		ctx, cancel := context.WithTimeout(r.ctx, idle)
		fetches := r.cl.PollRecords(ctx, pollRecords)
		cancel()
		if r.ctx.Err() != nil || fetches.IsClientClosed() {
			r.cl.PauseFetchTopics(r.c.Topics...)
			return nil
		}
		if errors.Is(fetches.Err0(), context.DeadlineExceeded) {
			r.probe()
			idle = laterIdle
			continue
		}
		bad := false
		fetches.EachError(func(topic string, partition int32, err error) {
			bad = true
			r.reportError(topic, err)
		})
		var err error
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			if err == nil && len(p.Records) > 0 {
				err = r.put(topicPartition{p.Topic, p.Partition}, p.Records)
			}
		})
		if err != nil {
			return err
		}
		if !bad && fetches.NumRecords() > 0 {
			r.reads.Worked()
		}
	}
}

// connectHook stores the result of each attempt to connect and authenticate.
type connectHook struct{ r *Reader }

func (c connectHook) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	c.r.connectErr = err
}

// probe is called if no records arrive for some time. It requests the metadata of the topics and
// reports an error, because the client retries forever without reporting errors.
func (r *Reader) probe() {
	ctx, cancel := context.WithTimeout(r.ctx, firstIdle)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	for _, name := range r.c.Topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, r.cl)
	if r.ctx.Err() != nil {
		return
	}
	if err != nil {
		r.mu.Lock()
		if r.connectErr != nil { // contains more information than the timeout
			err = r.connectErr
		}
		r.mu.Unlock()
		r.probes.Failed("cannot reach the brokers", r.hide(err))
		return
	}
	for _, t := range resp.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); t.Topic != nil && err != nil {
			if errors.Is(err, kerr.UnknownTopicOrPartition) {
				err = errors.New("there is no such topic")
			}
			r.probes.Failed("cannot read topic "+*t.Topic, r.hide(err))
			return
		}
	}
	r.probes.Worked()
}

// Stop makes Run return after the current call of the sink. It may be called more than once.
func (r *Reader) Stop() { r.stop() }

// leave leaves the group and closes the client. During a rebalance, the broker answers only when
// all members have answered or timed out, so leave waits at most for leaveTimeout. Without an
// answer, the brokers remove the member after its session timeout.
func (r *Reader) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		defer cancel()
		_ = r.cl.LeaveGroupContext(ctx)
		r.cl.Close()
	}()
	select {
	case <-closed:
	case <-ctx.Done():
	}
}

// reportError reports an error that concerns the group or a topic.
func (r *Reader) reportError(topic string, err error) {
	var loss *kgo.ErrDataLoss
	if errors.As(err, &loss) {
		r.sink.Say("the brokers have lost records of %s, partition %d: reading continues at offset %d instead of %d", loss.Topic, loss.Partition, loss.ResetTo, loss.ConsumedTo)
		return
	}
	what := "cannot read"
	if topic != "" {
		what += " topic " + topic
	}
	r.reads.Failed(what, r.hide(err))
}

// hide removes credentials from err, because messages of brokers may contain them.
func (r *Reader) hide(err error) error {
	var g *kgo.ErrGroupSession
	if errors.As(err, &g) {
		err = g.Err
	}
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: the broker closed the connection; it may require TLS, or have refused the credentials", err)
	}
	return secrets.HideIn(err, "***", r.c.Kafka.User, r.c.Kafka.Password)
}

// put passes records of a partition to the sink, as long as this member owns the partition.
func (r *Reader) put(at topicPartition, recs []*kgo.Record) error {
	for _, k := range recs {
		if !r.mayPut(at) {
			return nil
		}
		if k.Value != nil && r.isFirst(k) { // a nil value means that the key was deleted
			if err := r.sink.Put(r.record(k)); err != nil {
				return err
			}
		}
		r.mu.Lock()
		if r.owned[at] {
			r.next[at] = kgo.EpochOffset{Epoch: k.LeaderEpoch, Offset: k.Offset + 1}
		}
		r.uncommitted++
		r.mu.Unlock()
	}
	r.committer.Notify()
	return nil
}

// mayPut reports whether the next record of a partition may be passed to the sink. It waits while
// too many records are uncommitted. It returns false if this member does not own the partition any
// more, or after Stop.
func (r *Reader) mayPut(at topicPartition) bool {
	for r.ctx.Err() == nil {
		r.mu.Lock()
		owned, n := r.owned[at], r.uncommitted
		r.mu.Unlock()
		switch {
		case !owned:
			return false // the new owner of the partition reads the records
		case n == maxUncommitted/2:
			r.committer.NotifyNow()
			return true
		case n < maxUncommitted:
			return true
		}
		r.committer.NotifyNow()
		select {
		case <-r.room:
		case <-r.ctx.Done():
		}
	}
	return false
}

// isFirst returns false if k is a duplicate of an earlier record.
func (r *Reader) isFirst(k *kgo.Record) bool {
	if r.window == nil {
		return true
	}
	id, err := dedup.Parse(header(k, dedup.Header))
	return err != nil || r.window.First(id)
}

// record converts k. The result is valid until the next call.
func (r *Reader) record(k *kgo.Record) *input.Record {
	r.rec = input.Record{Body: k.Value, Attrs: r.attrs(r.rec.Attrs[:0], k)}
	if k.Timestamp.UnixMilli() > 0 {
		r.rec.Time = k.Timestamp
	}
	// Ignore the level info, because package kafka also writes it for records without a level.
	if name := string(header(k, "level")); name != "" && name != "info" {
		if l, err := record.ParseLevel(name); err == nil {
			r.level = l
			r.rec.Level = &r.level
		}
	}
	return &r.rec
}

// attrs appends attributes for the topic of k and for the fields in Config.Fields.
func (r *Reader) attrs(dst []slog.Attr, k *kgo.Record) []slog.Attr {
	dst = append(dst, slog.String("topic", k.Topic))
	for _, name := range r.c.Fields {
		switch name {
		case "key":
			if k.Key != nil {
				dst = append(dst, slog.String(name, string(k.Key)))
			}
		case "partition":
			dst = append(dst, slog.Int64(name, int64(k.Partition)))
		case "offset":
			dst = append(dst, slog.Int64(name, k.Offset))
		default:
			if v := header(k, name); v != nil {
				dst = append(dst, slog.String(name, string(v)))
			}
		}
	}
	return dst
}

// header returns the value of the named header, or nil.
func header(k *kgo.Record, name string) []byte {
	if i := slices.IndexFunc(k.Headers, func(h kgo.RecordHeader) bool { return strings.EqualFold(h.Key, name) }); i >= 0 {
		return k.Headers[i].Value
	}
	return nil
}

// setOwned adds the partitions in parts to those that this member owns, or removes them if ours is
// false. The Kafka client calls it.
func (r *Reader) setOwned(parts map[string][]int32, ours bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for topic, ps := range parts {
		for _, p := range ps {
			if at := (topicPartition{topic, p}); ours {
				r.owned[at] = true
			} else {
				delete(r.owned, at)
				delete(r.next, at)
			}
		}
	}
	commits.Signal(r.room) // mayPut may be waiting for a lost partition
}

// revoked removes the partitions in parts from those that this member owns. It commits the offsets
// of records that are delivered within revokeTimeout. The Kafka client calls it before another
// member gets the partitions.
func (r *Reader) revoked(parts map[string][]int32) {
	r.mu.Lock()
	last := offsets{}
	for topic, ps := range parts {
		for _, p := range ps {
			at := topicPartition{topic, p}
			if o, ok := r.next[at]; ok {
				last[at] = o
			}
			delete(r.owned, at)
			delete(r.next, at)
		}
	}
	closed := r.closed
	r.mu.Unlock()
	commits.Signal(r.room) // mayPut may be waiting for one of these partitions
	r.committing.Lock()    // a commit in progress may include these partitions
	defer r.committing.Unlock()
	if len(last) == 0 || closed {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), revokeTimeout)
	defer cancel()
	if r.sink.Commit(ctx) == nil {
		r.send(ctx, last)
	}
}

// offsets contains the next offset to read from each partition.
type offsets map[topicPartition]kgo.EpochOffset

// A position contains the offsets after all uncommitted records, and the number of these records.
type position struct {
	offsets
	records int
}

func (r *Reader) pending() (position, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return position{maps.Clone(r.next), r.uncommitted}, r.uncommitted > 0
}

// commit commits the offsets in t. It omits partitions that this member no longer owns.
func (r *Reader) commit(ctx context.Context, t position) {
	all := t.offsets
	r.committing.Lock()
	defer r.committing.Unlock()
	r.mu.Lock()
	for at := range all {
		if !r.owned[at] {
			delete(all, at)
		}
	}
	r.mu.Unlock()
	ok := len(all) == 0 || r.send(ctx, all)
	r.mu.Lock()
	defer r.mu.Unlock()
	if ok {
		maps.DeleteFunc(r.next, func(at topicPartition, o kgo.EpochOffset) bool { return all[at] == o })
		r.uncommitted -= t.records
		commits.Signal(r.room)
	}
	if r.uncommitted > 0 {
		r.committer.Notify()
	}
}

// send commits offsets at the brokers. It returns false if that fails. The caller holds committing.
func (r *Reader) send(ctx context.Context, all offsets) bool {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	by := map[string]map[int32]kgo.EpochOffset{}
	for at, o := range all {
		if by[at.topic] == nil {
			by[at.topic] = map[int32]kgo.EpochOffset{}
		}
		by[at.topic][at.partition] = o
	}
	var failed error
	r.cl.CommitOffsetsSync(ctx, by, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		if failed = err; err != nil {
			return
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					failed = fmt.Errorf("partition %d of topic %s: %w", p.Partition, t.Topic, err)
				}
			}
		}
	})
	switch {
	case failed == nil:
		r.stores.Worked()
	case ctx.Err() == nil || errors.Is(failed, context.DeadlineExceeded):
		r.stores.Failed("cannot commit offsets of group "+r.c.Group, r.hide(failed))
	}
	return failed == nil
}

// Close leaves the group. If delivered is true, all outputs have delivered or stored all records,
// and Close commits the last offsets.
func (r *Reader) Close(delivered bool) error {
	r.stop()
	r.committer.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
	defer cancel()
	var err error
	if t, _ := r.pending(); len(t.offsets) > 0 && delivered {
		r.committing.Lock()
		if !r.send(ctx, t.offsets) {
			err = fmt.Errorf("the last offsets of group %s were not committed: its records are read again", r.c.Group)
		}
		r.committing.Unlock()
	}
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.leave()
	if r.window != nil {
		if n := r.window.Stats().Twice; n > 0 {
			r.sink.Say("duplicate records skipped: %d", n)
		}
	}
	return err
}
