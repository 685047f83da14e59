// Package fromkafka reads topics of Kafka as a member of a consumer group.
//
// An offset is committed once every output has the records before it. While outputs are full
// nothing is fetched beyond what one request brings; the group goes on. A partition that goes
// to another member takes with it what is delivered within five seconds: the other one begins
// behind that, and reads the rest again.
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
	Kafka  kafka.Config // brokers, credentials, TLS
	Topics []string
	Group  string
	// Instance is the name of the member, by which it gets its partitions back at once when
	// the program comes again. Without it the group waits for a member that was killed.
	Instance string
	FromEnd  bool     // a group without offsets begins at the end
	Fields   []string // see [Reader.attrs]
	Dedup    bool     // records that come twice are left out
}

// Check finds what is wrong with c. It makes no connection.
func (c *Config) Check() error {
	opts, err := c.options()
	if err == nil {
		err = kgo.ValidateOpts(opts...)
	}
	return err
}

// The shape of fetches: what lies here beside the memory of the outputs is one of each broker.
const (
	fetchBytes     = 4 << 20 // compressed; a batch that is larger comes all the same
	partitionBytes = 1 << 20
	pollRecords    = 1000
)

// mostOpen is how many records may be put and not committed: those that come again when the
// program is killed.
const mostOpen = 20_000

const (
	firstQuiet = 2 * time.Second // without records, before a look at the brokers
	laterQuiet = 15 * time.Second
	patience   = 15 * time.Second // of the group with a member that says nothing
	closing    = 10 * time.Second // for the last commit
	leaving    = 2 * time.Second  // of the group, at the end
	handOver   = 5 * time.Second  // for a partition that another member gets
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
		kgo.SessionTimeout(patience), kgo.FetchMaxWait(time.Second),
		kgo.ConsumerGroup(c.Group), kgo.ConsumeTopics(c.Topics...), kgo.ConsumeStartOffset(begin), kgo.DisableAutoCommit(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxBytes(fetchBytes), kgo.FetchMaxPartitionBytes(partitionBytes),
	), nil
}

// A place is a partition.
type place struct {
	topic     string
	partition int32
}

// A Reader is a [input.Reader].
type Reader struct {
	c    Config
	sink commits.Sink
	cl   *kgo.Client
	ctx  context.Context // until Stop
	stop context.CancelFunc
	loop *commits.Loop

	reading, looking, storing commits.Trouble

	committing sync.Mutex // held while offsets go to the group; before mu

	mu      sync.Mutex // a leaf; guards the rest
	owned   map[place]bool
	behind  map[place]kgo.EpochOffset // the last record that was put, and is not committed
	open    int                       // records that were put and are not committed
	over    bool                      // of the group
	refused error                     // of the last connection
	room    chan struct{}             // holds one when open falls

	window *dedup.Window // of Run; nil: none
	rec    input.Record
	level  slog.Level
}

// New returns a Reader, which becomes a member of the group at once.
func New(c Config, sink commits.Sink) (*Reader, error) {
	r := &Reader{
		c: c, sink: sink, owned: map[place]bool{}, behind: map[place]kgo.EpochOffset{}, room: make(chan struct{}, 1),
		reading: commits.Trouble{Sink: sink}, looking: commits.Trouble{Sink: sink}, storing: commits.Trouble{Sink: sink},
	}
	if c.Dedup {
		r.window = dedup.New(nil)
	}
	opts, err := c.options()
	if err != nil {
		return nil, err
	}
	r.ctx, r.stop = context.WithCancel(context.Background())
	r.cl, err = kgo.NewClient(append(opts, kgo.WithHooks(connects{r}),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, parts map[string][]int32) { r.own(parts, true) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, parts map[string][]int32) { r.revoked(parts) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, parts map[string][]int32) { r.own(parts, false) }),
	)...)
	if err != nil {
		return nil, err
	}
	r.loop = commits.Begin(sink, time.Second, r.take, r.store)
	return r, nil
}

// Run reads until Stop, or until the sink takes no more.
func (r *Reader) Run() error {
	for quiet := firstQuiet; ; {
		ctx, cancel := context.WithTimeout(r.ctx, quiet)
		fetches := r.cl.PollRecords(ctx, pollRecords)
		cancel()
		if r.ctx.Err() != nil || fetches.IsClientClosed() {
			r.cl.PauseFetchTopics(r.c.Topics...)
			return nil
		}
		if errors.Is(fetches.Err0(), context.DeadlineExceeded) {
			r.probe()
			quiet = laterQuiet
			continue
		}
		bad := false
		fetches.EachError(func(topic string, partition int32, err error) {
			bad = true
			r.complain(topic, err)
		})
		var err error
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			if err == nil && len(p.Records) > 0 {
				err = r.put(place{p.Topic, p.Partition}, p.Records)
			}
		})
		if err != nil {
			return err
		}
		if !bad && fetches.NumRecords() > 0 {
			r.reading.Over()
		}
	}
}

// connects notes how connections begin, credentials included.
type connects struct{ r *Reader }

func (c connects) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	c.r.refused = err
}

// probe looks why nothing comes: the client tries again by itself, and says nothing.
func (r *Reader) probe() {
	ctx, cancel := context.WithTimeout(r.ctx, firstQuiet)
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
		if r.refused != nil { // says more than that the time is up
			err = r.refused
		}
		r.mu.Unlock()
		r.looking.Is("cannot reach the brokers", r.hide(err))
		return
	}
	for _, t := range resp.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); t.Topic != nil && err != nil {
			if errors.Is(err, kerr.UnknownTopicOrPartition) {
				err = errors.New("there is no such topic")
			}
			r.looking.Is("cannot read topic "+*t.Topic, r.hide(err))
			return
		}
	}
	r.looking.Over()
}

// Stop makes Run return.
func (r *Reader) Stop() { r.stop() }

// leave leaves the group and ends the client. A group that is being joined lets nobody go before
// all its members have answered, or their sessions are over: that is not waited for. Brokers
// notice who is not there any more.
func (r *Reader) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), leaving)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		defer cancel()
		_ = r.cl.LeaveGroupContext(ctx)
		r.cl.Close()
	}()
	select {
	case <-gone:
	case <-ctx.Done():
	}
}

// complain tells of an error of the group or of a topic.
func (r *Reader) complain(topic string, err error) {
	var loss *kgo.ErrDataLoss
	if errors.As(err, &loss) {
		r.sink.Say("the brokers have lost records of %s, partition %d: reading continues at offset %d instead of %d", loss.Topic, loss.Partition, loss.ResetTo, loss.ConsumedTo)
		return
	}
	what := "cannot read"
	if topic != "" {
		what += " topic " + topic
	}
	r.reading.Is(what, r.hide(err))
}

// hide keeps the credentials out of errors of the client, which may repeat a broker's words.
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

// put gives records of a partition to the sink, as long as it is ours.
func (r *Reader) put(at place, recs []*kgo.Record) error {
	for _, k := range recs {
		if !r.mayPut(at) {
			return nil
		}
		if k.Value != nil && r.first(k) { // nil marks a key as deleted
			if err := r.sink.Put(r.record(k)); err != nil {
				return err
			}
		}
		r.mu.Lock()
		if r.owned[at] {
			r.behind[at] = kgo.EpochOffset{Epoch: k.LeaderEpoch, Offset: k.Offset + 1}
		}
		r.open++
		r.mu.Unlock()
	}
	r.loop.News()
	return nil
}

// mayPut reports whether a record of a partition is to be put. It waits while too many are
// not committed.
func (r *Reader) mayPut(at place) bool {
	for r.ctx.Err() == nil {
		r.mu.Lock()
		owned, open := r.owned[at], r.open
		r.mu.Unlock()
		switch {
		case !owned:
			return false // whoever has it reads them
		case open == mostOpen/2:
			r.loop.Hurry()
			return true
		case open < mostOpen:
			return true
		}
		r.loop.Hurry()
		select {
		case <-r.room:
		case <-r.ctx.Done():
		}
	}
	return false
}

// first reports whether a record came for the first time, as far as is known.
func (r *Reader) first(k *kgo.Record) bool {
	if r.window == nil {
		return true
	}
	id, err := dedup.Parse(header(k, dedup.Header))
	return err != nil || r.window.First(id)
}

// record returns what the sink is given for k.
func (r *Reader) record(k *kgo.Record) *input.Record {
	r.rec = input.Record{Body: k.Value, Attrs: r.attrs(r.rec.Attrs[:0], k)}
	if k.Timestamp.UnixMilli() > 0 {
		r.rec.Time = k.Timestamp
	}
	// A driver of forebay says info of a record without a level, too.
	if name := string(header(k, "level")); name != "" && name != "info" {
		if l, err := record.ParseLevel(name); err == nil {
			r.level = l
			r.rec.Level = &r.level
		}
	}
	return &r.rec
}

// attrs appends the fields of k: its topic, and those of Config.Fields.
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

// header returns the value of a header, nil if there is none.
func header(k *kgo.Record, name string) []byte {
	if i := slices.IndexFunc(k.Headers, func(h kgo.RecordHeader) bool { return strings.EqualFold(h.Key, name) }); i >= 0 {
		return k.Headers[i].Value
	}
	return nil
}

// own notes which partitions are ours.
func (r *Reader) own(parts map[string][]int32, ours bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for topic, ps := range parts {
		for _, p := range ps {
			if at := (place{topic, p}); ours {
				r.owned[at] = true
			} else {
				delete(r.owned, at)
				delete(r.behind, at)
			}
		}
	}
	signal(r.room) // a record of what is lost may wait
}

// revoked gives partitions back. What is delivered soon is committed.
func (r *Reader) revoked(parts map[string][]int32) {
	r.mu.Lock()
	last := offsets{}
	for topic, ps := range parts {
		for _, p := range ps {
			at := place{topic, p}
			if o, ok := r.behind[at]; ok {
				last[at] = o
			}
			delete(r.owned, at)
			delete(r.behind, at)
		}
	}
	over := r.over
	r.mu.Unlock()
	signal(r.room)      // a record of theirs may wait
	r.committing.Lock() // what is under way may be theirs
	defer r.committing.Unlock()
	if len(last) == 0 || over {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), handOver)
	defer cancel()
	if r.sink.Commit(ctx) == nil {
		r.send(ctx, last)
	}
}

// offsets are places to go on from.
type offsets map[place]kgo.EpochOffset

// A taken is what was put and is not committed.
type taken struct {
	offsets
	records int
}

func (r *Reader) take() (taken, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return taken{maps.Clone(r.behind), r.open}, r.open > 0
}

// store commits offsets to the group, of partitions that are ours still.
func (r *Reader) store(ctx context.Context, t taken) {
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
		maps.DeleteFunc(r.behind, func(at place, o kgo.EpochOffset) bool { return all[at] == o })
		r.open -= t.records
		signal(r.room)
	}
	if r.open > 0 {
		r.loop.News()
	}
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// send tells the group. The caller holds committing.
func (r *Reader) send(ctx context.Context, all offsets) bool {
	ctx, cancel := context.WithTimeout(ctx, closing)
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
		r.storing.Over()
	case ctx.Err() == nil || errors.Is(failed, context.DeadlineExceeded):
		r.storing.Is("cannot commit offsets of group "+r.c.Group, r.hide(failed))
	}
	return failed == nil
}

// Close leaves the group. If the outputs have everything, that is committed before.
func (r *Reader) Close(delivered bool) error {
	r.stop()
	r.loop.End()
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	var err error
	if t, _ := r.take(); len(t.offsets) > 0 && delivered {
		r.committing.Lock()
		if !r.send(ctx, t.offsets) {
			err = fmt.Errorf("the last offsets of group %s were not committed: its records are read again", r.c.Group)
		}
		r.committing.Unlock()
	}
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	r.leave()
	if r.window != nil {
		if n := r.window.Stats().Twice; n > 0 {
			r.sink.Say("duplicate records skipped: %d", n)
		}
	}
	return err
}
