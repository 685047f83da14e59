package slab

import (
	"sync/atomic"

	"github.com/forebay-log/forebay/batch"
)

// The words of the state that count something are self-checking: wordBits bits of
// value, and a check of them above. One store writes both, so that the death of the
// process leaves no word without its check. Only acked and ackedToo are plain: they
// check each other. Files of version 1 have plain words alone.

const (
	wordBits = 48
	maxWord  = 1<<wordBits - 1
)

// sealWord returns the word that stands for v, which is maxWord at most. That of 0 is 0,
// as in a new file.
func sealWord(v uint64) uint64 {
	v = min(v, maxWord)
	return v | v*0x9e3779b97f4a7c15>>wordBits<<wordBits
}

// openWord returns the value of a word, and false if it is damaged.
func openWord(word uint64) (v uint64, ok bool) {
	v = word & maxWord
	return v, word == sealWord(v)
}

// storeWord writes a word of the state.
func storeWord(at *uint64, v uint64) { atomic.StoreUint64(at, sealWord(v)) }

// word returns the word of the state that stands for v in the file.
func (im *Image) word(v uint64) uint64 {
	if im.sealed {
		return sealWord(v)
	}
	return v
}

// read returns the value of a word of the state, and false, after it has counted that, if
// it is damaged or above what can be.
func (im *Image) read(word, most uint64) (v uint64, ok bool) {
	v, ok = word, true
	if im.sealed {
		v, ok = openWord(word)
	}
	if ok = ok && v <= most; !ok {
		im.DamagedState++
		return 0, false
	}
	return v, true
}

// mostBig returns how many records larger than a slab can be pending.
func (id *identity) mostBig() uint64 { return id.oversize/uint64(id.slabBytes-batch.SlotBytes) + 1 }
