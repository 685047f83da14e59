// Package crashfile is the file that slab.CrashSafe maps into memory: its format, the
// records that a dead process has left in it, and their delivery by hand. It knows no
// Writer. Its errors begin with "slab: ", since users see them as errors of that package.
package crashfile

import (
	"encoding/binary"
	"hash/crc32"
	"sync/atomic"
	"unsafe"
)

// Slabs have these sizes: slab.MinSlabBytes, slab.MaxSlabBytes and slab.MaxSlabCount.
const (
	MinSlabBytes = 512
	MaxSlabBytes = 64 << 20
	MaxSlabCount = 1 << 16
)

// The file, little-endian:
//
//	page 0            identity, written once, CRC32C over it
//	page 1            state: words that change, each on its own cache line
//	dictionary        64 KiB: stream definitions, appended, length in the state
//	slab headers      64 B each
//	slabs             as in memory
const (
	Magic        = "FBSLAB1\n"
	Version      = 2 // written; version 1 is read, too
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
	IdentCRC       = 12 // of everything after it
	IdentUUID      = 16
	IdentBoot      = 32
	IdentCreated   = 48
	IdentPID       = 56
	IdentSlabBytes = 60
	IdentSlabCount = 64
	IdentSchema    = 68
	IdentType      = 72 // its length, then the content type, 255 bytes at most
	IdentFlags     = 336
	IdentOversize  = 344
)

// Flags of page 0.
const (
	FlagStreams = 1 << iota // every stream of a record is in the dictionary
	FlagTracked             // the state names the oversize records beside the file
)

// State is page 1. Each word is stored atomically, with the mutex of
// the Writer held, and all but Acked and AckedToo by StoreWord.
type State struct {
	Acked    uint64 // every ticket up to it is settled
	AckedToo uint64 // the same, stored after it: the lower of the two counts
	_        [48]byte
	HeapHeld uint64 // oversize records pending that are in this process's heap only
	HeapFrom uint64 // 0, or: records with this ticket and later ones are on the heap
	_        [48]byte
	DictLen  uint64 // bytes of the dictionary that are valid
	_        [56]byte
	Evicted  uint64 // records that DropOldest evicted so far
	Skipped  uint64 // as many of them have tickets up to Acked
	Ahead    uint64 // records above Acked that are settled and whose slabs were used again
	_        [40]byte
	Damaged  uint64 // set by a recovery: records lost to damage, at least 1
	BigMore  uint64 // records with a frame beside the file that are not in Big
	_        [StateBig - 272]byte
	Big      [BigTracked]uint64 // tickets of pending records with a frame beside the file; 0: none
}

// Offsets in the page of the state.
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

// BigTracked is how many oversize records the state names.
const BigTracked = (Page - StateBig) / 8

// The files of other processes are read by these sizes. The package does not build where
// the memory layout differs.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(Head{})-HeadBytes]
	_ = [1]struct{}{}[unsafe.Sizeof(State{})-Page]
	_ = [1]struct{}{}[unsafe.Offsetof(State{}.Big)-StateBig]
)

// HeadBytes is the size of a Head.
const HeadBytes = 64

// HeadsBytes is how much the headers of so many slabs take in the file.
func HeadsBytes(slabCount int) int { return roundUp(HeadBytes*slabCount, Page) }

// Head is the header of one slab.
type Head struct {
	// First is the lowest ticket the slab may hold: older slots are leftovers of
	// an earlier use, which is why nothing needs to be zeroed.
	First uint64
	// Old is read only: where a process of an earlier version died while DropOldest
	// was writing over a slab, it has the slots [from, to) that were left of its
	// older records, as from<<32 | to. 0: none.
	Old uint64
	// Sum is the number of slots of a sealed slab <<32 | CRC32C over its payload,
	// those slots, First and Last. 0: none, the tickets alone vouch for the slab.
	Sum uint64
	// Last is the ticket of the last of those slots.
	Last uint64
	_    [32]byte
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// Size is how long a file with such slabs is.
func Size(slabBytes, slabCount int) int64 {
	return int64(HeadsOff+HeadsBytes(slabCount)) + int64(slabBytes)*int64(slabCount)
}

// Castagnoli is the table of all checksums here.
var Castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Sum is CRC32C over first, last, the payload of a slab and its slots.
func Sum(first, last uint64, payload, slots []byte) uint32 {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], first)
	binary.LittleEndian.PutUint64(b[8:], last)
	sum := crc32.Update(0, Castagnoli, b[:])
	sum = crc32.Update(sum, Castagnoli, payload)
	return crc32.Update(sum, Castagnoli, slots)
}

const (
	// MaxStreamBytes bounds the file beside.
	MaxStreamBytes = 256 << 20
	// NoDefinition is the length of a stream that is in use and that the dictionary does
	// not know: stream 0 of a destination without streams.
	NoDefinition = ^uint32(0)
	// StreamHeadLen is the size of the head of an entry in the file beside: CRC32C,
	// number, length.
	StreamHeadLen = 12
)

// BigHeadLen is the size of the head of a record that is larger than a slab: CRC32C, length, ticket, time, stream, level, flags, zeros.
const BigHeadLen = 40

// FlagEvicted marks a frame without payload: the record with this ticket was
// evicted by policy.
const FlagEvicted = 1

// The words of the State that count something are self-checking: wordBits bits of
// value, and a check of them above. One store writes both, so that the death of the
// process leaves no word without its check. Only Acked and AckedToo are plain: they
// check each other. Files of version 1 have plain words alone.
const (
	wordBits = 48
	// MaxWord is the largest value.
	MaxWord = 1<<wordBits - 1
)

// SealWord returns the word that stands for v, which is MaxWord at most. That of 0 is 0,
// as in a new file.
func SealWord(v uint64) uint64 {
	v = min(v, MaxWord)
	return v | v*0x9e3779b97f4a7c15>>wordBits<<wordBits
}

// openWord returns the value of a word, and false if it is damaged.
func openWord(word uint64) (v uint64, ok bool) {
	v = word & MaxWord
	return v, word == SealWord(v)
}

// StoreWord writes a word of the state.
func StoreWord(at *uint64, v uint64) { atomic.StoreUint64(at, SealWord(v)) }
