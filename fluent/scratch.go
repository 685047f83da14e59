package fluent

import (
	"slices"
	"unicode/utf8"

	"github.com/forebay-log/forebay/bufpool"
	"github.com/forebay-log/forebay/internal/msgpack"
	"github.com/forebay-log/forebay/internal/slablog"
)

// These constants are sizes of memory, in bytes, and the condition for returning to a smaller size.
const (
	// ownScratchBytes is the size of the buffer that each recordMemory owns. Most records fit.
	// For larger records, Post borrows memory from the pool.
	ownScratchBytes = 1 << 10
	// maxScratchBytes is the size of the largest record that uses borrowed memory: 1 MiB, which is
	// the default of MaxRecord, and space for the beginning of the entry. maxSendBytes is the size
	// of the largest write from borrowed memory. Larger memory is allocated and left to the garbage
	// collector.
	maxScratchBytes = 1<<20 + 4<<10
	maxSendBytes    = 8 << 20
	// shrinkAfter is the number of consecutive records of at most ownScratchBytes after which a
	// recordMemory stops borrowing.
	shrinkAfter = 1 << 10
)

// scratch is the pool of memory for large records and for frames. It is shared by all Drivers of
// the process.
var scratch = newScratch(false)

// newScratch returns a pool. If debug is true, which only tests set, the pool detects memory that
// is used after it was returned.
func newScratch(debug bool) *bufpool.Pool {
	p, err := bufpool.New(bufpool.Config{
		// The sizes are powers of four, the default size of a frame, and the size of a window of
		// such frames.
		SizeClasses: []int{4 << 10, 16 << 10, 64 << 10, 68 << 10, 272 << 10, maxScratchBytes, 4 << 20, maxSendBytes},
		NoZero:      true, // only written bytes are read
		Debug:       debug,
	})
	if err != nil {
		panic(err) // the configuration is constant
	}
	return p
}

// A recordMemory is the memory for encoding a record of Post. Long strings are not copied to it.
// They are spliced: written directly to the slab, between the parts of the record. A recordMemory
// is used by one goroutine.
type recordMemory struct {
	// borrowSize and smallRecords keep their values for later records.
	borrowSize   int    // size to borrow from scratch; 0: own is sufficient
	smallRecords int    // number of consecutive records that fit into own although memory was borrowed
	borrowed     []byte // borrowed memory; nil if there is none

	splices       []slablog.Splice      // the spliced strings, in the order of their positions
	spliceBytes   int                   // total length of splices
	insertedBytes int                   // length of the spliced strings that insert has copied into the record
	canSplice     bool                  // splice may be used for the next string
	own           [ownScratchBytes]byte // memory for small records
}

// buffer returns an empty slice with memory for a record of Post. The memory is m.own or, if recent
// records were larger, borrowed memory of their size. The caller must call release.
func (m *recordMemory) buffer() []byte {
	if m.borrowSize > 0 {
		m.borrowed, _ = scratch.Get(m.borrowSize)
		return m.borrowed[:0]
	}
	return m.own[:0]
}

// release returns the memory of buffer to its pool. The size of rec, the encoded record, determines
// how much memory is borrowed next. If rec did not fit, append has moved it to memory that the
// garbage collector frees.
func (m *recordMemory) release(rec []byte) {
	if m.borrowSize == 0 && m.borrowed == nil && len(rec) <= ownScratchBytes {
		return
	}
	if m.borrowed != nil {
		scratch.Put(m.borrowed)
		m.borrowed = nil
	}
	// Strings that are copied directly into the slab need no memory of m.
	switch n := len(rec) - m.insertedBytes; {
	case n > maxScratchBytes:
	case n > ownScratchBytes:
		m.borrowSize, m.smallRecords = max(m.borrowSize, n), 0
	default:
		if m.smallRecords++; m.smallRecords >= shrinkAfter {
			m.borrowSize, m.smallRecords = 0, 0
		}
	}
}

const (
	// minSpliceBytes is the minimum length in bytes of a spliced string. For a shorter string,
	// copying costs less than splicing.
	minSpliceBytes = 512
	// maxSplices is the maximum number of spliced strings in a record. It limits the search for
	// their positions when the record is written.
	maxSplices = 8
)

// splice appends a string. If possible, it appends only the header, and adds the string with its
// offset to m.splices, to be copied directly into the slab later. The offset must remain valid.
// Therefore splice may only be called for values of the top-level map, because the bytes before
// these values are not moved later. The caller must have checked m.canSplice. A string with invalid
// UTF-8 is copied, because the invalid bytes must be replaced.
func (m *recordMemory) splice(dst []byte, v string) []byte {
	if len(m.splices) == maxSplices || !utf8.ValidString(v) {
		return msgpack.AppendStr(dst, v)
	}
	dst = msgpack.AppendStrHeader(dst, len(v))
	m.splices = append(m.splices, slablog.Splice{At: len(dst), Text: v})
	m.spliceBytes += len(v)
	return dst
}

// insert returns dst with the strings of m.splices inserted. It begins with the last one, so that
// each byte is moved only once. The result is in the memory of dst if it fits, otherwise in
// borrowed memory.
func (m *recordMemory) insert(dst []byte) []byte {
	if m.spliceBytes == 0 {
		return dst
	}
	all := len(dst) + m.spliceBytes
	out, old := dst, m.borrowed
	if cap(dst) < all {
		m.borrowed, _ = scratch.Get(all)
		out = m.borrowed
	} else {
		old = nil // out still uses this memory, so it is not returned below
	}
	out = out[:all]
	for _, h := range slices.Backward(m.splices) {
		all -= copy(out[all-(len(dst)-h.At):], dst[h.At:])
		all -= copy(out[all-len(h.Text):], h.Text)
		dst = dst[:h.At]
	}
	copy(out, dst)
	if old != nil {
		scratch.Put(old)
	}
	m.insertedBytes = m.spliceBytes
	m.drop()
	return out
}

// drop removes all strings from m.splices and clears m.canSplice.
func (m *recordMemory) drop() {
	m.canSplice = false
	if m.spliceBytes > 0 {
		clear(m.splices)
		m.splices, m.spliceBytes = m.splices[:0], 0
	}
}
