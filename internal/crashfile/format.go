// Package crashfile implements the crash-safe files of slab.Options.Crash: mapped files that hold
// the slabs of a writer, so that its records survive the process. It contains the file of this
// process ([Memory]), the file format, the recovery of files of dead processes ([Adoption]), and
// manual replay ([Replay]). A ticket is the sequence number of a record. A record is settled when
// it is delivered or dropped, so that it need not be recovered. The package is independent of
// slablog.Writer. Its errors begin with "slab: ", since users know the feature from that package.
package crashfile

import (
	"encoding/binary"
	"hash/crc32"
	"sync/atomic"
	"unsafe"
)

// The file format, little-endian:
//
//	page 0            identity, written once, with a CRC32C
//	page 1            state: mutable words, each on a separate cache line
//	dictionary        64 KiB: stream definitions, appended, length in the state
//	slab headers      64 B each
//	slabs             as in memory
const (
	Magic        = "FBSLAB1\n"
	Version      = 2 // the version that is written; version 1 can also be read
	Page         = 4096
	DictOff      = 2 * Page
	DictLen      = 64 << 10
	HeadsOff     = DictOff + DictLen
	Suffix       = ".slab"
	BigSuffix    = ".big"
	StreamSuffix = ".streams"
	NewSuffix    = ".new"
	BadSuffix    = ".damaged"
	MaxBytes     = 1<<31 - 1
)

// Offsets in page 0, after the magic.
const (
	IdentVersion   = 8
	IdentCRC       = 12 // CRC32C of all following bytes of page 0
	IdentUUID      = 16
	IdentBoot      = 32
	IdentCreated   = 48
	IdentPID       = 56
	IdentSlabBytes = 60
	IdentSlabCount = 64
	IdentSchema    = 68
	IdentType      = 72 // one byte with the length, then the content type, at most 255 bytes
	IdentFlags     = 336
	IdentOversize  = 344
)

// Flags of page 0.
const (
	FlagStreams = 1 << iota // the dictionary contains every stream that records refer to
	FlagTracked             // the state lists the oversize records that are in the companion file
)

// State is page 1. Each word is stored atomically, with the Writer's mutex held. Acked and AckedToo
// are plain numbers. The other words contain a checksum, see StoreWord.
type State struct {
	Acked    uint64 // every record up to this ticket (sequence number) is settled: delivered or dropped
	AckedToo uint64 // a copy that is stored after Acked; the lower of the two is valid
	_        [48]byte
	HeapHeld uint64 // number of pending oversize records that are only in the memory of the process
	HeapFrom uint64 // if not 0, records from this ticket on are in ordinary memory, not in the file
	_        [48]byte
	DictLen  uint64 // number of valid bytes of the dictionary
	_        [56]byte
	Evicted  uint64 // number of records evicted by DropOldest so far
	Skipped  uint64 // number of evicted records with tickets up to Acked
	Ahead    uint64 // number of records above Acked that are delivered or dropped, and whose slabs were reused
	_        [40]byte
	Damaged  uint64 // set by a recovery: number of records lost by damage, or 1 if the number is not known
	BigMore  uint64 // number of records with a frame in the companion file that are not listed in Big
	_        [StateBig - 272]byte
	Big      [BigTracked]uint64 // tickets of pending records with a frame in the companion file; 0: unused
}

// Offsets in the state page.
const (
	StateAcked    = unsafe.Offsetof(State{}.Acked)
	StateAckedToo = unsafe.Offsetof(State{}.AckedToo)
	StateHeapHeld = unsafe.Offsetof(State{}.HeapHeld)
	StateHeapFrom = unsafe.Offsetof(State{}.HeapFrom)
	StateDictLen  = unsafe.Offsetof(State{}.DictLen)
	StateEvicted  = unsafe.Offsetof(State{}.Evicted)
	StateSkipped  = unsafe.Offsetof(State{}.Skipped)
	StateAhead    = unsafe.Offsetof(State{}.Ahead)
	StateDamaged  = unsafe.Offsetof(State{}.Damaged)
	StateBigMore  = unsafe.Offsetof(State{}.BigMore)
	StateBig      = 1024
)

// BigTracked is the number of oversize records that the state can list.
const BigTracked = (Page - StateBig) / 8

// These sizes are part of the file format, which other processes read. The package does not compile
// if the memory layout differs.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(Head{})-HeadBytes]
	_ = [1]struct{}{}[unsafe.Sizeof(State{})-Page]
	_ = [1]struct{}{}[unsafe.Offsetof(State{}.Big)-StateBig]
)

// HeadBytes is the size of a Head.
const HeadBytes = 64

// EmptySum marks a slab without records. If Close leaves a file to the next process, it sets
// Head.Sum of each such slab to EmptySum, and Head.Last to 0. No checksum matches EmptySum, so
// recovery reads nothing from the slab.
const EmptySum = 1<<32 - 1

// HeadsBytes returns the size of the slab headers in the file.
func HeadsBytes(slabCount int) int { return roundUp(HeadBytes*slabCount, Page) }

// Head is the header of a slab.
type Head struct {
	// First is the lowest ticket that the slab may contain. Slabs are not zeroed for reuse, so
	// slots with lower tickets are leftovers.
	First uint64
	// Old is read from files of an earlier version and never written. If the process died while
	// DropOldest was overwriting a slab, Old is from<<32 | to: the slots [from, to) still contain
	// older records of the slab. 0 means that there are none.
	Old uint64
	// Sum is set when the slab is sealed, that is, gets no more records. The upper 32 bits are its
	// number of slots. The lower 32 bits are a CRC32C over its payload, these slots, First and
	// Last. If Sum is 0, there is no checksum, and only the tickets identify the records.
	Sum uint64
	// Last is the ticket of the last slot of a sealed slab.
	Last uint64
	_    [32]byte
}

// roundUp returns n rounded up to a multiple of unit.
func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }

// Size returns the length of a file with slabCount slabs of slabBytes bytes each.
func Size(slabBytes, slabCount int) int64 {
	return int64(HeadsOff+HeadsBytes(slabCount)) + int64(slabBytes)*int64(slabCount)
}

// Castagnoli is the table for all checksums in this package.
var Castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Sum returns the CRC32C over first, last, the payload of a slab and its slots.
func Sum(first, last uint64, payload, slots []byte) uint32 {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], first)
	binary.LittleEndian.PutUint64(b[8:], last)
	sum := crc32.Update(0, Castagnoli, b[:])
	sum = crc32.Update(sum, Castagnoli, payload)
	return crc32.Update(sum, Castagnoli, slots)
}

const (
	// MaxStreamBytes limits the size of the companion file of stream definitions.
	MaxStreamBytes = 256 << 20
	// NoDefinition is stored as the length of a stream that has no definition in the dictionary:
	// stream 0 of a destination without streams.
	NoDefinition = ^uint32(0)
	// StreamHeadLen is the size of the header of a stream definition in the companion file: CRC32C,
	// stream number, length.
	StreamHeadLen = 12
)

// BigHeadLen is the size of the header of a record larger than a slab: CRC32C, length,
// ticket, time, stream, level, flags, zeros.
const BigHeadLen = 40

// FlagEvicted marks a tombstone: a frame without payload for a record that was evicted by policy.
const FlagEvicted = 1

// The counters in State are self-checking: the low wordBits bits are the value, and the high bits
// are its checksum. A single store writes both, so a crash cannot separate them. Acked and AckedToo
// have no checksum, because recovery compares them. In files of version 1, no word has a checksum.
const (
	wordBits = 48
	// MaxWord is the largest value that a word with a checksum can hold.
	MaxWord = 1<<wordBits - 1
)

// SealWord returns v with its checksum in the high bits. v must not exceed MaxWord. The result for
// 0 is 0, so the zeros of a new file are valid words.
func SealWord(v uint64) uint64 {
	v = min(v, MaxWord)
	return v | v*0x9e3779b97f4a7c15>>wordBits<<wordBits
}

// openWord returns the value of a word. It returns false if the word is damaged.
func openWord(word uint64) (v uint64, ok bool) {
	v = word & MaxWord
	return v, word == SealWord(v)
}

// StoreWord stores a word of the state.
func StoreWord(at *uint64, v uint64) { atomic.StoreUint64(at, SealWord(v)) }
