package kafka

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/dedup"
	"github.com/forebay-log/forebay/internal/pattern"
)

// A topicPartition is a partition of a topic.
type topicPartition struct {
	topic     string
	partition int32
}

// A piece is a Kafka batch for one partition, with some or all records of one batch of the outlet.
// The method Send creates it and passes it to the goroutine of run, which then owns it.
type piece struct {
	// of is the outlet's batch to which the records belong. It is nil for a reference record.
	of      *pending
	at      topicPartition
	recs    []int32 // indexes of the records in of.b
	buf     []byte  // the sealed Kafka batch, see builder.seal
	raw     int     // size before compression, in bytes
	largest int     // size of the largest record before compression, in bytes
	// unsure reports that the piece was sent at least once without an answer, so the broker may
	// have stored it.
	unsure bool

	// named contains the indexes of records that the broker named as invalid. They are refused once
	// the records in recs are stored.
	named  []int32
	reason error // reason for refusing the records in named, or the suspect

	reference bool // the piece is a copy of a reference record and belongs to no batch
	refusals  int  // weighted number of refusals of a suspect; see condemned
	// deferred reports that the piece is a suspect without a reference record. Later records are
	// sent first.
	deferred bool
}

// A packer converts records to pieces. It is used by one goroutine at a time.
type packer struct {
	d          *Driver
	topic, key pattern.Filler
	level      pattern.Pattern // "{level}"

	fixed string // the topic if all records have the same topic, otherwise ""
	// hint is a text that every record with the trace field contains. A record without this text
	// need not be parsed. If hint is nil, there is no such text.
	hint   []byte
	now    int64 // time for records without a time, in Unix ns
	murmur kgo.TopicPartitioner
	record kgo.Record // record passed to murmur, reused

	// Memory for parts of the current record. The next record overwrites it.
	name    []byte // topic
	keyed   []byte // key
	id      []byte // value of the header forebay-id; the origin part is constant within a batch
	trace   []byte // value of the header trace-id
	lev     []byte // value of the header level
	json    []byte // value of the record, if it was converted from a binary form
	headers []header

	scratch bytes.Buffer // memory for compression
	idle    []*builder   // builders for reuse
}

// newPacker returns a packer with the patterns of the Config of d.
func newPacker(d *Driver) *packer {
	level, _ := pattern.Parse("{level}")
	fixed, _ := d.c.topic.Fixed()
	return &packer{
		d: d, level: level, fixed: fixed, hint: hint(d.c.TraceField),
		topic:  pattern.Filler{Clean: cleanTopic, Missing: unknown},
		murmur: kgo.StickyKeyPartitioner(nil).ForTopic(""),
	}
}

// hint returns the last part of a field name. Every record with the field contains this part. hint
// returns nil if JSON may escape the name.
func hint(field string) []byte {
	field = field[strings.LastIndexByte(field, '.')+1:]
	for _, c := range []byte(field) {
		if c <= ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return nil
		}
	}
	return []byte(field)
}

// begin prepares k for the records of b. The first 33 bytes of the header forebay-id are the same
// for all records of b.
func (k *packer) begin(b *batch.Batch) {
	k.now = time.Now().UnixNano()
	k.id = hex.AppendEncode(k.id[:0], b.Origin[:])
	k.id = append(k.id, '-')
}

// topicOf returns the name of the topic of a record. It is valid until the next call.
func (k *packer) topicOf(codec batch.Codec, rec *batch.Record) []byte {
	k.name = k.topic.Append(k.name[:0], &k.d.c.topic, codec, rec)
	if len(k.name) > maxTopic {
		k.name = k.name[:maxTopic]
	}
	if s := string(k.name); s == "" || s == "." || s == ".." {
		k.name = append(k.name[:0], unknown...)
	}
	return k.name
}

// keyOf returns the key of a record, or nil if the record has no key. The key is valid until the
// next call.
func (k *packer) keyOf(codec batch.Codec, rec *batch.Record) []byte {
	if k.d.c.Key == "" {
		return nil
	}
	if k.keyed = k.key.Append(k.keyed[:0], &k.d.c.key, codec, rec); len(k.keyed) == 0 {
		return nil
	}
	return k.keyed
}

// partition returns the partition of a record among n partitions. As in the default partitioner of
// the Java client, the murmur2 hash of the key determines the partition. Without a key, the origin
// of the batch determines it.
func (k *packer) partition(b *batch.Batch, key []byte, n int) int32 {
	if key != nil {
		k.record.Key = key
		return int32(k.murmur.Partition(&k.record, n))
	}
	// A batch without an origin was created by the program itself, not from memory of an output.
	// Its records without a key go to one partition.
	if b.Origin == ([16]byte{}) {
		return int32(k.d.spread % uint64(n))
	}
	// The finalizer of MurmurHash3 spreads the bits, because origins may differ only in a few bits.
	h := binary.BigEndian.Uint64(b.Origin[:8]) ^ binary.BigEndian.Uint64(b.Origin[8:])
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	return int32(h % uint64(n))
}

// fill returns the value of a record and sets k.headers. Value and headers are valid until the next
// call. The value may be memory of b.
func (k *packer) fill(b *batch.Batch, rec *batch.Record) (value []byte) {
	k.headers = k.headers[:0]
	if b.Origin != ([16]byte{}) && rec.Ticket > 0 {
		k.id = strconv.AppendUint(k.id[:33], rec.Ticket, 10) // the form of dedup.ID
		k.headers = append(k.headers, header{dedup.Header, k.id})
	}
	// The level is sent as a header, so that consumers can filter records without parsing their
	// values.
	k.lev = k.key.Append(k.lev[:0], &k.level, nil, rec)
	k.headers = append(k.headers, header{"level", k.lev})
	if k.d.c.TraceField != "-" && (!pattern.IsText(b.Codec) || bytes.Contains(rec.Data, k.hint)) {
		if k.trace = k.key.Append(k.trace[:0], &k.d.c.trace, b.Codec, rec); len(k.trace) > 0 {
			k.headers = append(k.headers, header{"trace-id", k.trace})
		}
	}
	// Consumers of Kafka expect text, so binary records are converted to JSON.
	if !pattern.IsText(b.Codec) {
		k.json = b.Codec.AppendJSON(k.json[:0], rec.Data, rec.Meta)
		return k.json
	}
	value = rec.Data
	if n := len(value); n > 0 && value[n-1] == '\n' {
		value = value[:n-1]
	}
	return value
}

// A cell collects the records of a piece until it is sealed.
type cell struct {
	w       *builder
	recs    []int32
	largest int
	limit   int // maximum size of the piece before compression, in bytes
}

// onePartition is passed to pack as the parameter partitions if the partition is already known.
func onePartition(string) (int, error) { return 1, nil }

// pack converts records of p to pieces and appends the pieces to dst. indexes selects records in
// ascending order; nil means all. The function partitions returns the number of partitions of a
// topic; if it fails, pack returns its error. The pieces of one partition are in the order of their
// records. A record larger than the limit gets a separate piece.
func (k *packer) pack(dst []*piece, p *pending, indexes []int32, partitions func(string) (int, error)) ([]*piece, error) {
	k.begin(p.b)
	cells := map[topicPartition]*cell{}
	var order []topicPartition
	var (
		last    string // topic of the previous record
		n       int    // number of partitions of the topic last
		lastAt  topicPartition
		current *cell
	)
	next := 0
	for i, rec := range p.b.All() {
		if indexes != nil {
			if next == len(indexes) {
				break
			}
			if int(indexes[next]) != i {
				continue
			}
			next++
		}
		// Consecutive records often have the same topic and partition. For these, the lookups and
		// the allocation of the topic name are skipped.
		name := k.fixed
		if name == "" {
			b := k.topicOf(p.b.Codec, &rec)
			if name = last; string(b) != last {
				name = string(b)
			}
		}
		if n == 0 || name != last {
			last = name
			var err error
			if n, err = partitions(last); err != nil {
				k.drop(cells)
				return dst, err
			}
		}
		key := k.keyOf(p.b.Codec, &rec)
		at := topicPartition{last, k.partition(p.b, key, n)}
		if current == nil || at != lastAt {
			if current = cells[at]; current == nil {
				current = &cell{w: k.builder(), limit: k.d.limit(last)}
				cells[at] = current
				order = append(order, at)
			}
			lastAt = at
		}
		// If this record would make the piece larger than the limit, the piece is sealed, and the
		// record begins the next one.
		value := k.fill(p.b, &rec)
		size := recordSize(key, value, k.headers)
		if current.w.n > 0 && len(current.w.buf)+size > current.limit {
			dst = append(dst, k.seal(p, at, current))
			current.w.reset()
			current.recs, current.largest = nil, 0
		}
		current.w.add(millis(cmp.Or(rec.Time, k.now)), key, value, k.headers)
		current.recs = append(current.recs, int32(i))
		current.largest = max(current.largest, size)
	}
	// The pieces are sealed in the order of their first records. The order of the map would be
	// random.
	for _, at := range order {
		dst = append(dst, k.seal(p, at, cells[at]))
	}
	k.drop(cells)
	return dst, nil
}

// seal returns the records of c as a piece for the given partition.
func (k *packer) seal(p *pending, at topicPartition, c *cell) *piece {
	// Without compression the size is known, so the memory is allocated at once. With compression
	// the size is usually much smaller, so the memory grows as needed.
	var dst []byte
	if k.d.c.Compression == "none" {
		dst = make([]byte, 0, len(c.w.buf))
	}
	return &piece{
		of: p, at: at, recs: c.recs, raw: len(c.w.buf), largest: c.largest,
		buf: c.w.seal(dst, k.d.c.compressor, &k.scratch),
	}
}

// builder returns an empty builder, which may be reused.
func (k *packer) builder() *builder {
	w := new(builder)
	if n := len(k.idle); n > 0 {
		w, k.idle = k.idle[n-1], k.idle[:n-1]
	}
	w.reset()
	return w
}

// maxIdle is the number of builders that are retained for reuse. maxIdleBytes limits the memory of
// each of them.
const maxIdle, maxIdleBytes = 16, 1 << 21

// drop retains the builders of cells for reuse.
func (k *packer) drop(cells map[topicPartition]*cell) {
	for _, c := range cells {
		if len(k.idle) < maxIdle && cap(c.w.buf) <= maxIdleBytes {
			k.idle = append(k.idle, c.w)
		}
	}
}
