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

// chunkID identifies a frame in its acknowledgement: base64 of 16 bytes.
type chunkID [24]byte

// A frame is one message: records of one tag, in order.
type frame struct {
	tag    string
	stream uint32
	// The records are order[from:to] of the layout, or, if order is nil, the records with
	// indexes in [from, to).
	from, to int
	bytes    int // size of the payload
	id       chunkID
	acked    bool
}

// A layout is the division of a batch into frames. It is reused.
type layout struct {
	frames  []frame
	order   []int // record indexes, grouped by tag; nil if all records have the same tag
	refs    []ref // of all records; used while order is computed
	groups  []group
	byID    map[uint32]int
	byTag   map[string]int
	refused []int // indexes of refused records, ascending
	why     error
}

type ref struct {
	data  []byte
	group int
}

type group struct {
	stream uint32
	tag    string
	n, at  int
}

// foreign returns the error for records of another wire form.
func foreign(c batch.Codec) error {
	switch {
	case c == nil:
		return nil // raw entries: the writer is responsible for the form
	case c.ContentType() != entryType:
		return fmt.Errorf("fluent: cannot send records of content type %q: only %s", c.ContentType(), entryType)
	}
	return nil
}

// bounds are the sizes that a server accepts, in bytes of payload.
type bounds struct {
	frame   int // of a frame with several records
	record  int
	refused int    // the server has rejected a record of this size; 0: the limit of Config applies
	server  string // the server that set refused
}

// tooLarge returns the error for a rejected record of n bytes.
func (m *bounds) tooLarge(n int) error {
	if m.refused > 0 {
		return fmt.Errorf("fluent: cannot send a record of %d bytes: %s has already refused one of %d bytes", n, m.server, m.refused)
	}
	return fmt.Errorf("fluent: cannot send a record of %d bytes: frames are limited to %d", n, m.record+maxHead)
}

// bounds returns the limits of Config.
func (c *resolved) bounds() bounds {
	frame := c.FrameBytes
	if c.Mode == modeMessage { // one record per frame
		frame = 0
	}
	return bounds{frame: frame, record: c.MaxFrameBytes - maxHead}
}

// cut divides b into frames.
func (l *layout) cut(b *batch.Batch, c *resolved, most bounds) {
	l.frames, l.order, l.refused, l.why = l.frames[:0], l.order[:0], l.refused[:0], nil
	if err := foreign(b.Codec); err != nil {
		l.why = err
		for i := range b.Len() {
			l.refused = append(l.refused, i)
		}
		return
	}
	if stream, ok := single(b, most.record); ok {
		tag, ok := c.tag(stream)
		if !ok {
			l.refuseAll(b.Len(), stream)
			return
		}
		l.order = nil
		l.sequence(b, tag, stream, most.frame)
		return
	}
	l.sort(b, c, most)
}

// maxHead is an upper bound of a frame's size without its payload, headBytes also without its tag.
const (
	headBytes = 128
	maxHead   = maxTagBytes + headBytes
)

// single reports whether all records have the same stream and no separate tag, and none is too large.
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

func (c *resolved) tag(stream uint32) (string, bool) {
	if stream == noTag {
		return c.Tag, true
	}
	return tagOf(stream)
}

func (l *layout) refuseAll(n int, stream uint32) {
	l.why = unknownStream(stream)
	for i := range n {
		l.refused = append(l.refused, i)
	}
}

func unknownStream(stream uint32) error {
	return fmt.Errorf("fluent: cannot send a record of stream %d: it has no usable tag", stream)
}

// sequence divides a batch of one tag.
func (l *layout) sequence(b *batch.Batch, tag string, stream uint32, limit int) {
	f := frame{tag: tag, stream: stream}
	k := 0
	for i := range b.Runs {
		r := &b.Runs[i]
		for j := range r.Len() {
			n := int(r.Slot(j).Len)
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

// sort divides a batch of several tags. Records of one tag stay in order.
func (l *layout) sort(b *batch.Batch, c *resolved, most bounds) {
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
		case len(data) > most.record:
			g = -1
			l.why = most.tooLarge(len(data))
		case len(data) == 0:
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
	at = 0
	for _, g := range l.groups {
		f := frame{tag: g.tag, stream: g.stream, from: at, to: at}
		for range g.n {
			n := len(l.refs[l.order[at]].data)
			if f.bytes > 0 && f.bytes+n > most.frame {
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

// groupOf returns the group of a record, -1 for one without a tag, and its entry.
func (l *layout) groupOf(rec *batch.Record, c *resolved) (g int, entry []byte) {
	if rec.Stream != ownTag {
		if g, known := l.byID[rec.Stream]; known {
			return g, rec.Data
		}
		tag, ok := c.tag(rec.Stream)
		if g = -1; ok {
			g = l.groupOfTag(tag, rec.Stream)
		}
		l.byID[rec.Stream] = g
		return g, rec.Data
	}
	if t, entry, err := msgpack.Next(rec.Data); err == nil && t.Kind == msgpack.Str {
		if g, known := l.byTag[string(t.Bytes)]; known { // without an allocation
			return g, entry
		}
	}
	tag, entry, ok := splitTag(rec.Data)
	if !ok {
		return -1, rec.Data
	}
	return l.groupOfTag(tag, ownTag), entry
}

func (l *layout) groupOfTag(tag string, stream uint32) int {
	g, known := l.byTag[tag]
	if !known {
		g = len(l.groups)
		l.byTag[tag] = g
		l.groups = append(l.groups, group{stream: stream, tag: tag})
	}
	return g
}

// forget drops the references to the batch's memory.
func (l *layout) forget() {
	clear(l.refs)
	clear(l.groups)
	clear(l.byTag)
	if cap(l.refs) > 1<<16 {
		l.refs, l.order = nil, nil
	}
}

// indexes appends the record indexes of f.
func (l *layout) indexes(dst []int, f *frame) []int {
	if l.order != nil {
		return append(dst, l.order[f.from:f.to]...)
	}
	for i := f.from; i < f.to; i++ {
		dst = append(dst, i)
	}
	return dst
}

// pieces calls fn with the pieces of the payload of f.
func (l *layout) pieces(b *batch.Batch, f *frame, fn func([]byte)) {
	if l.order != nil {
		for _, i := range l.order[f.from:f.to] {
			fn(l.refs[i].data)
		}
		return
	}
	i, j := f.from, f.to
	for k := range b.Runs {
		n := b.Runs[k].Len()
		if lo, hi := max(i, 0), min(j, n); lo < hi {
			r := b.Runs[k].Slice(lo, hi)
			fn(r.Data())
		}
		i, j = i-n, j-n
	}
}

// name assigns ids to the frames. Equal content has the same id each time this process sends it;
// salt distinguishes Drivers.
func (l *layout) name(b *batch.Batch, seed maphash.Seed, salt uint64) {
	var h maphash.Hash
	for i := range l.frames {
		f := &l.frames[i]
		h.SetSeed(seed)
		l.pieces(b, f, func(p []byte) { h.Write(p) })
		sum := h.Sum64()
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

func makeID(a, b uint64) (id chunkID) {
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:], a)
	binary.BigEndian.PutUint64(raw[8:], b)
	base64.StdEncoding.Encode(id[:], raw[:])
	return id
}

// next returns another id if id is in use.
func (id chunkID) next() chunkID {
	var raw [18]byte
	base64.StdEncoding.Decode(raw[:], id[:])
	return makeID(binary.BigEndian.Uint64(raw[:]), binary.BigEndian.Uint64(raw[8:])+1)
}

// The values of Config.Mode. The empty text is modePacked.
const (
	modePacked  = "packed-forward"
	modeForward = "forward"
	modeMessage = "message"
)

// A framer writes frames.
type framer struct {
	ack  bool
	mode string             // modePacked or another mode
	zip  compression.Writer // nil: no compression
	name string             // name of the compression in the protocol
	into appender
}

type appender struct{ b []byte }

func (a *appender) Write(p []byte) (int, error) {
	a.b = append(a.b, p...)
	return len(p), nil
}

func newFramer(c *resolved) *framer {
	w := &framer{ack: !c.NoAck, mode: c.Mode, name: c.Compress}
	if c.Compress != "" {
		f, _ := compression.Find(c.Compress) // checked with the Config
		w.zip = f.NewWriter(compression.Fast)
	}
	return w
}

// head appends the bytes before the payload of n bytes.
func (w *framer) head(dst []byte, f *frame, n int) []byte {
	parts := 3
	if w.mode == modeMessage && w.ack { // there are options only with acknowledgements
		parts = 4
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

// pieces calls fn with the pieces of the payload of f.
func (w *framer) pieces(l *layout, b *batch.Batch, f *frame, fn func([]byte)) {
	if w.mode != modeMessage {
		l.pieces(b, f, fn)
		return
	}
	l.pieces(b, f, func(p []byte) { // the fields of the entry become fields of the message
		if t, rest, err := msgpack.Next(p); err == nil && t.Kind == msgpack.Array {
			p = rest
		}
		fn(p)
	})
}

// tail appends the bytes after the payload.
func (w *framer) tail(dst []byte, f *frame) []byte {
	n := 0
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

// append appends a complete frame.
func (w *framer) append(dst []byte, l *layout, b *batch.Batch, f *frame) []byte {
	if w.zip == nil {
		dst = w.head(dst, f, f.bytes)
		w.pieces(l, b, f, func(p []byte) { dst = append(dst, p...) })
		return w.tail(dst, f)
	}
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
