package fluent

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/compression"
	"github.com/forebay-log/forebay/internal/msgpack"
)

// A chunkID is the option "chunk" of a frame, base64 of 16 bytes. The server acknowledges the frame
// with {"ack": id}. See section "Response" of the specification.
type chunkID [24]byte

// A frame is one message of the protocol: records of one tag, in order. The goroutine that called
// Send writes its fields. After session.register, session.mu guards acked.
type frame struct {
	tag    string
	stream uint32
	// The records of the frame are order[from:to] of the layout. If order is nil, they are the
	// records of the batch with indexes in [from, to).
	from, to int
	bytes    int     // total size of the records, uncompressed
	id       chunkID // zero with Config.NoAck
	acked    bool    // the server has acknowledged the frame
}

// A layout is the division of a batch into frames. The field refused contains the records that are
// in no frame. A layout is reused for later batches, so that dividing a batch does not allocate.
type layout struct {
	frames  []frame
	order   []int // record indexes, grouped by tag; nil if all records have the same tag
	refs    []ref // the records in the order of the batch; unused if order is nil
	groups  []group
	byID    map[uint32]int // index in groups by stream; -1: the stream has no tag
	byTag   map[string]int // index in groups by tag
	refused []int          // indexes of refused records, in ascending order
	why     error          // reason why the last record in refused is refused
}

// A ref refers to a record of a batch with several tags.
type ref struct {
	data  []byte // the entry without its tag; memory of the batch
	group int    // index in layout.groups; -1: the record is refused
}

// A group contains the records of one tag in a batch.
type group struct {
	stream uint32
	tag    string
	n      int // number of records
	at     int // used only by sort: position of the next record in layout.order
}

// foreign returns an error if records with the codec c are not Forward entries.
func foreign(c batch.Codec) error {
	switch {
	case c == nil:
		return nil // the application has encoded the entries itself, so they are not checked
	case c.ContentType() != entryType:
		return fmt.Errorf("fluent: cannot send records of content type %q: only %s", c.ContentType(), entryType)
	}
	return nil
}

// tooLarge returns the error for a record of n bytes, which is larger than m.record.
func (m *bounds) tooLarge(n int) error {
	if m.refused > 0 {
		return fmt.Errorf("fluent: cannot send a record of %d bytes: %s has already refused one of %d bytes", n, m.server, m.refused)
	}
	return fmt.Errorf("fluent: cannot send a record of %d bytes: frames are limited to %d", n, m.record+maxHead)
}

// bounds returns the size limits of Config. They do not include limits learned from servers.
func (c *resolved) bounds() bounds {
	frame := c.FrameBytes
	if c.Mode == modeMessage {
		frame = 0 // every record exceeds 0 bytes, so each frame has one record
	}
	return bounds{frame: frame, record: c.MaxFrameBytes - maxHead}
}

// cut divides b into frames that are not larger than maxSizes. The layout refers to the memory of b
// until forget is called.
func (l *layout) cut(b *batch.Batch, c *resolved, maxSizes bounds) {
	l.frames, l.order, l.refused, l.why = l.frames[:0], l.order[:0], l.refused[:0], nil
	if err := foreign(b.Codec); err != nil {
		l.why = err
		for i := range b.Len() {
			l.refused = append(l.refused, i)
		}
		return
	}
	if stream, ok := single(b, maxSizes.record); ok {
		tag, ok := c.tag(stream)
		if !ok {
			l.refuseAll(b.Len(), stream)
			return
		}
		l.order = nil
		l.sequence(b, tag, stream, maxSizes.frame)
		return
	}
	l.sort(b, c, maxSizes)
}

// single reports whether all records have the same stream, contain no tag, and are neither empty
// nor larger than limit. This is the common case. Such a batch needs neither the field order nor
// refs.
func single(b *batch.Batch, limit int) (stream uint32, ok bool) {
	first := true
	for i := range b.Runs {
		r := &b.Runs[i]
		for j := range r.Len() {
			s := r.Slot(j)
			if first {
				stream, first = s.Stream, false
			}
			if s.Stream != stream || stream == ownTag || int(s.Len) > limit || s.Len == 0 {
				return 0, false
			}
		}
	}
	return stream, true
}

// tag returns the tag of a stream other than ownTag. It returns false if the stream is not in the
// tag table.
func (c *resolved) tag(stream uint32) (string, bool) {
	if stream == noTag {
		return c.Tag, true
	}
	return tagOf(stream)
}

// refuseAll puts all n records of a batch into the field refused, because their stream has no tag.
func (l *layout) refuseAll(n int, stream uint32) {
	l.why = unknownStream(stream)
	for i := range n {
		l.refused = append(l.refused, i)
	}
}

// unknownStream returns the error for a record of a stream without a tag.
func unknownStream(stream uint32) error {
	return fmt.Errorf("fluent: cannot send a record of stream %d: it has no usable tag", stream)
}

// sequence divides a batch of one tag into frames of at most limit bytes. A larger record gets a
// separate frame.
func (l *layout) sequence(b *batch.Batch, tag string, stream uint32, limit int) {
	f := frame{tag: tag, stream: stream}
	k := 0
	for i := range b.Runs {
		r := &b.Runs[i]
		for j := range r.Len() {
			n := int(r.Slot(j).Len)
			// A record larger than the limit gets a separate frame.
			if f.bytes > 0 && f.bytes+n > limit {
				l.frames = append(l.frames, f)
				f = frame{tag: tag, stream: stream, from: k}
			}
			f.bytes += n
			k++
			f.to = k
		}
	}
	if f.to > f.from {
		l.frames = append(l.frames, f)
	}
}

// sort divides a batch that has several tags or contains unsendable records. The records of one tag
// keep their order, and the tags are in the order of their first records. The algorithm is a
// counting sort: sort counts the records of each tag, and then puts each record at the next
// position of its tag.
func (l *layout) sort(b *batch.Batch, c *resolved, maxSizes bounds) {
	l.refs, l.groups = l.refs[:0], l.groups[:0]
	if l.byID == nil {
		l.byID, l.byTag = map[uint32]int{}, map[string]int{}
	}
	clear(l.byID)
	clear(l.byTag)
	for i, rec := range b.All() {
		g, data := l.groupOf(&rec, c)
		switch {
		case g < 0:
			l.why = unknownStream(rec.Stream)
		case len(data) > maxSizes.record:
			g = -1
			l.why = maxSizes.tooLarge(len(data))
		case len(data) == 0: // an empty entry would make the payload invalid
			g = -1
			l.why = fmt.Errorf("fluent: cannot send an empty record: it is not an event")
		}
		l.refs = append(l.refs, ref{data, g})
		if g < 0 {
			l.refused = append(l.refused, i)
			continue
		}
		l.groups[g].n++
	}
	// The records of group g are order[g.at:g.at+g.n]. Unsendable records are in no group.
	at := 0
	for g := range l.groups {
		l.groups[g].at = at
		at += l.groups[g].n
	}
	l.order = slices.Grow(l.order[:0], at)[:at]
	for i := range l.refs {
		if g := l.refs[i].group; g >= 0 {
			l.order[l.groups[g].at] = i
			l.groups[g].at++
		}
	}
	// The loop above has moved the field at of each group to the end of the group, so the positions
	// are counted again.
	at = 0
	for _, g := range l.groups {
		f := frame{tag: g.tag, stream: g.stream, from: at, to: at}
		for range g.n {
			n := len(l.refs[l.order[at]].data)
			if f.bytes > 0 && f.bytes+n > maxSizes.frame {
				l.frames = append(l.frames, f)
				f = frame{tag: g.tag, stream: g.stream, from: at}
			}
			f.bytes += n
			at++
			f.to = at
		}
		if f.to > f.from {
			l.frames = append(l.frames, f)
		}
	}
}

// groupOf returns the index of the group of rec, and the entry without its tag. The index is -1 if
// rec has no valid tag.
func (l *layout) groupOf(rec *batch.Record, c *resolved) (g int, entry []byte) {
	if rec.Stream != ownTag {
		if g, known := l.byID[rec.Stream]; known {
			return g, rec.Data
		}
		tag, ok := c.tag(rec.Stream)
		if g = -1; ok {
			g = l.groupOfTag(tag, rec.Stream)
		}
		// The result is stored even if the stream has no tag, so that each stream is looked up only
		// once per batch.
		l.byID[rec.Stream] = g
		return g, rec.Data
	}
	if t, entry, err := msgpack.Next(rec.Data); err == nil && t.Kind == msgpack.Str {
		if g, known := l.byTag[string(t.Bytes)]; known { // this conversion does not allocate
			return g, entry
		}
	}
	tag, entry, ok := splitTag(rec.Data)
	if !ok {
		return -1, rec.Data
	}
	return l.groupOfTag(tag, ownTag), entry
}

// groupOfTag returns the index of the group with the given tag. It adds the group if there is none.
func (l *layout) groupOfTag(tag string, stream uint32) int {
	g, known := l.byTag[tag]
	if !known {
		g = len(l.groups)
		l.byTag[tag] = g
		l.groups = append(l.groups, group{stream: stream, tag: tag})
	}
	return g
}

// forget removes the references to the memory of the batch, because the batch belongs to package
// deliver again. After an unusually large batch, forget also frees the memory of the layout.
func (l *layout) forget() {
	clear(l.refs)
	clear(l.groups)
	clear(l.byTag)
	// A batch of very many records must not keep its index for the lifetime of the Driver.
	if cap(l.refs) > 1<<16 {
		l.refs, l.order = nil, nil
	}
}

// indexes appends the batch indexes of the records of f.
func (l *layout) indexes(dst []int, f *frame) []int {
	if l.order != nil {
		return append(dst, l.order[f.from:f.to]...)
	}
	for i := f.from; i < f.to; i++ {
		dst = append(dst, i)
	}
	return dst
}

// pieces calls the function fn with consecutive parts of the payload of f, without copying them. If
// the field order is nil, there is one part for each run of the batch, otherwise one for each
// record.
func (l *layout) pieces(b *batch.Batch, f *frame, fn func([]byte)) {
	if l.order != nil {
		for _, i := range l.order[f.from:f.to] {
			fn(l.refs[i].data)
		}
		return
	}
	// The records of a run are contiguous in memory.
	i, j := f.from, f.to // relative to the first record of run k
	for k := range b.Runs {
		n := b.Runs[k].Len()
		if lo, hi := max(i, 0), min(j, n); lo < hi {
			r := b.Runs[k].Slice(lo, hi)
			fn(r.Data())
		}
		i, j = i-n, j-n
	}
}

// name assigns ids to the frames. An id is a hash of the records, their number, the stream and the
// ticket (sequence number) of the first record, so a frame that is sent again has the same id. The
// parameter seed makes ids differ between processes, and the parameter salt between Drivers.
func (l *layout) name(b *batch.Batch, seed maphash.Seed, salt uint64) {
	var h maphash.Hash
	for i := range l.frames {
		f := &l.frames[i]
		h.SetSeed(seed)
		l.pieces(b, f, func(p []byte) { h.Write(p) })
		sum := h.Sum64()
		// Because of the ticket, equal records at different positions have different ids.
		first := f.from
		if l.order != nil {
			first = l.order[f.from]
		}
		h.Reset()
		var meta [20]byte
		binary.LittleEndian.PutUint64(meta[:], b.At(first).Ticket)
		binary.LittleEndian.PutUint64(meta[8:], uint64(f.to-f.from))
		binary.LittleEndian.PutUint32(meta[16:], f.stream)
		h.Write(meta[:])
		f.id = makeID(sum^salt, h.Sum64())
	}
}

// makeID encodes two hashes as an id.
func makeID(a, b uint64) (id chunkID) {
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:], a)
	binary.BigEndian.PutUint64(raw[8:], b)
	base64.StdEncoding.Encode(id[:], raw[:])
	return id
}

// next returns another id, for a frame whose id is already in use by an unacknowledged frame. This
// happens if two batches contain equal records without tickets (sequence numbers).
func (id chunkID) next() chunkID {
	var raw [18]byte // decoded length of 24 characters, of which 2 are padding
	base64.StdEncoding.Decode(raw[:], id[:])
	return makeID(binary.BigEndian.Uint64(raw[:]), binary.BigEndian.Uint64(raw[8:])+1)
}

// A framer encodes frames. Each Driver has only one, because a compressor needs much memory. The
// open session uses it from one goroutine at a time.
type framer struct {
	ack  bool               // frames request acknowledgements
	mode string             // modePacked, modeForward or modeMessage
	zip  compression.Writer // nil: no compression
	name string             // value of the option "compressed"
	into appender           // receives the output of zip
}

// An appender is an io.Writer that appends to b.
type appender struct{ b []byte }

// Write appends p to a.b. It implements [io.Writer], and never fails.
func (a *appender) Write(p []byte) (int, error) {
	a.b = append(a.b, p...)
	return len(p), nil
}

// newFramer returns the framer for c.
func newFramer(c *resolved) *framer {
	w := &framer{ack: !c.NoAck, mode: c.Mode, name: c.Compress}
	if c.Compress != "" {
		// Config.resolve has already reported an unknown compression, so the error is ignored.
		f, _ := compression.Find(c.Compress)
		w.zip = f.NewWriter(compression.Fast)
	}
	return w
}

// head appends the part of the frame f before its payload. n is the size of the payload, after
// compression.
func (w *framer) head(dst []byte, f *frame, n int) []byte {
	parts := 3 // tag, payload and option; or tag, time and map
	if w.mode == modeMessage && w.ack {
		parts = 4 // in this mode the option contains only the chunk id
	}
	dst = msgpack.AppendArrayHeader(dst, parts)
	dst = msgpack.AppendStr(dst, f.tag)
	switch w.mode {
	case modeMessage:
		return dst
	case modeForward:
		return msgpack.AppendArrayHeader(dst, f.to-f.from)
	}
	return msgpack.AppendBinHeader(dst, n)
}

// pieces calls the function fn with the parts of the payload of f, in the format of Config.Mode.
func (w *framer) pieces(l *layout, b *batch.Batch, f *frame, fn func([]byte)) {
	if w.mode != modeMessage {
		l.pieces(b, f, fn)
		return
	}
	// The message contains time and map without the array header of the entry.
	l.pieces(b, f, func(p []byte) {
		if t, rest, err := msgpack.Next(p); err == nil && t.Kind == msgpack.Array {
			p = rest
		}
		fn(p)
	})
}

// tail appends the part of the frame f after its payload: the option map, if it has any pairs. The
// pair "size" is the number of records; see section "Option" of the specification.
func (w *framer) tail(dst []byte, f *frame) []byte {
	n := 0
	// The header of a MessagePack map contains the number of its pairs, so the pairs are counted
	// first.
	for _, has := range [...]bool{w.mode != modeMessage, w.ack, w.zip != nil} {
		if has {
			n++
		}
	}
	if n == 0 {
		return dst
	}
	dst = msgpack.AppendMapHeader(dst, n)
	if w.mode != modeMessage {
		dst = msgpack.AppendUint(msgpack.AppendStr(dst, "size"), uint64(f.to-f.from))
	}
	if w.ack {
		dst = msgpack.AppendStr(dst, "chunk")
		dst = append(msgpack.AppendStrHeader(dst, len(f.id)), f.id[:]...)
	}
	if w.zip != nil {
		dst = msgpack.AppendStr(msgpack.AppendStr(dst, "compressed"), w.name)
	}
	return dst
}

// append appends the complete frame f of l, including a copy of its records.
func (w *framer) append(dst []byte, l *layout, b *batch.Batch, f *frame) []byte {
	if w.zip == nil {
		dst = w.head(dst, f, f.bytes)
		w.pieces(l, b, f, func(p []byte) { dst = append(dst, p...) })
		return w.tail(dst, f)
	}
	// The header contains the compressed size. Therefore the payload is compressed first, into
	// separate memory.
	lent, _ := scratch.Get(w.bound(f.bytes))
	defer scratch.Put(lent)
	w.into.b = lent[:0]
	w.zip.Reset(&w.into)
	l.pieces(b, f, func(p []byte) { w.zip.Write(p) })
	w.zip.Close()
	dst = w.head(dst, f, len(w.into.b))
	dst = append(dst, w.into.b...)
	w.into.b = nil
	return w.tail(dst, f)
}

// maxSize returns an upper bound of the encoded size of frames, in bytes.
func (w *framer) maxSize(frames []frame) int {
	n := 0
	for i := range frames {
		f := &frames[i]
		n += headBytes + len(f.tag) + w.bound(f.bytes)
	}
	return n
}

// bound returns an upper bound of the size of n bytes of payload after compression. For
// incompressible data, gzip and zstd write the data unchanged, with a header of a few bytes per
// block and a frame header.
func (w *framer) bound(n int) int {
	if w.zip == nil {
		return n
	}
	return n + n>>8 + 64
}

// writeCopies encodes frames of l into one buffer and passes it to the function write in one call.
// The buffer is valid until write returns.
func (w *framer) writeCopies(l *layout, frames []frame, b *batch.Batch, write func([]byte) (int, error)) (int, error) {
	buf, _ := scratch.Get(w.maxSize(frames))
	defer scratch.Put(buf)
	out := buf[:0]
	for i := range frames {
		out = w.append(out, l, b, &frames[i])
	}
	return write(out)
}
