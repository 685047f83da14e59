// Package readahead stores input that a program has read and its outputs have not accepted. It uses
// a file that survives the program.
//
// A [File] is a ring buffer in mapped memory. The system call read writes into the ring, so the
// data is in the page cache before the program sees it. For each output, the file contains a
// position: the end of the input that the output has accepted. A process that is killed loses no
// input that it had read. The next process continues, for each output, at its position. Only the
// line that was being passed to an output at the time of the kill may reach that output twice.
//
// The file has three parts: the identity, which is written once and has a CRC-32C; a page with the
// state, whose words change; and the ring. All numbers are little-endian.
package readahead

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/forebay-log/forebay/internal/mapped"
	"github.com/forebay-log/forebay/internal/vfs"
)

const (
	magic      = "FBINPUT\n"
	version    = 1
	page       = 4096
	suffix     = ".input"
	newSuffix  = ".new"
	badSuffix  = ".damaged"
	maxOutputs = (page - stateAccepted) / 8
	maxBytes   = 1 << 30
)

// These are the offsets of fields in the identity, which begins with the magic number.
const (
	identVersion = 8
	identCRC     = 12 // CRC-32C of the following fields
	identBytes   = 16 // size of the identity, a multiple of the page size
	identOutputs = 20 // number of outputs
	identRing    = 24 // size of the ring in bytes
	identCreated = 32
	identPID     = 40
	identInput   = 44 // origin of the input: boot id, device and inode of a pipe or socket; zero for other inputs
	identNames   = 76 // names of the outputs, each preceded by its length in 16 bits
)

// These are the offsets of words in the state. A position is a number of bytes of the input. The
// byte at position n is stored at index n modulo the ring size.
const (
	stateEnd      = 0   // position of the end of the input
	stateReach    = 64  // position of the end of the blank bytes after stateEnd, some of which a read in progress may have overwritten
	stateLong     = 128 // two words: the last two positions that were stored within lines that are too long
	stateAccepted = 192 // one word for each output: position of the end of the input that it has accepted
)

// blank fills the part of the ring into which the next read may write. If the process dies after
// the read and before it stores stateEnd, the next process finds the end of the data by the last
// byte that is not blank. UTF-8 never contains this byte, and a newline in other charsets does not
// end in it.
const blank = 0xff

// An origin identifies the pipe or socket that is the input. It is zero for other inputs.
type origin [32]byte

// A File stores input that was read but that some output has not accepted. It is not safe for
// concurrent use.
type File struct {
	image   image
	origin  origin
	outputs []string
	src     io.Reader // nil if no more input is read

	start     uint64   // position at which this process has begun to read
	returned  uint64   // position up to which Read has returned the data
	end       uint64   // position of the end of the data in the ring
	reach     uint64   // position of the end of the blank bytes after the data
	accepted  []uint64 // position of each output
	refused   []bool   // for each output: it accepts no more input from this process
	longLines int      // number of positions that were stored within lines that are too long
}

// Options are the parameters of a new [File].
type Options struct {
	// Outputs contains the names of the outputs that receive the input.
	Outputs []string
	// Bytes is the minimum size of the ring in bytes.
	Bytes int
	// Input is the file that is read. If a later process reads from the same pipe or socket, it can
	// continue this File, even within a line.
	Input *os.File
}

// Create creates a file in dir and locks the file.
func Create(dir string, o Options) (*File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, vfs.DirError(dir, err)
	}
	if len(o.Outputs) > maxOutputs {
		return nil, fmt.Errorf("more than %d destinations", maxOutputs)
	}
	head := identNames
	for _, name := range o.Outputs {
		head += 2 + len(name)
	}
	head = roundUp(head)
	ring := roundUp(o.Bytes)
	if ring > maxBytes {
		return nil, fmt.Errorf("%d bytes exceed the limit of %d", ring, maxBytes)
	}
	var id [16]byte
	if err := mapped.RandomID(&id); err != nil {
		return nil, err
	}
	now := time.Now().UnixNano()
	path := filepath.Join(dir, fmt.Sprintf("%016x-%x%s", now, id[:4], suffix))
	f, mem, err := mapped.Create(path+newSuffix, head+page+ring)
	if err != nil {
		return nil, err
	}
	in := originOf(o.Input)
	le := binary.LittleEndian
	copy(mem, magic)
	le.PutUint32(mem[identVersion:], version)
	le.PutUint32(mem[identBytes:], uint32(head))
	le.PutUint32(mem[identOutputs:], uint32(len(o.Outputs)))
	le.PutUint64(mem[identRing:], uint64(ring))
	le.PutUint64(mem[identCreated:], uint64(now))
	le.PutUint32(mem[identPID:], uint32(os.Getpid()))
	copy(mem[identInput:], in[:])
	at := identNames
	for _, name := range o.Outputs {
		le.PutUint16(mem[at:], uint16(len(name)))
		at += 2 + copy(mem[at+2:], name)
	}
	le.PutUint32(mem[identCRC:], crc32.Checksum(mem[identCRC+4:head], castagnoli))
	if err := os.Rename(path+newSuffix, path); err != nil { // so that a file with this name is always complete
		os.Remove(path + newSuffix)
		mapped.Unmap(mem)
		f.Close()
		return nil, err
	}
	return newFile(image{path: path, file: f, mem: mem}, identity{head: head, origin: in, outputs: o.Outputs}), nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// roundUp rounds n up to a multiple of the page size.
func roundUp(n int) int { return (n + page - 1) / page * page }

// originOf returns the origin of f, which is zero unless f is a pipe or socket.
func originOf(f *os.File) (o origin) {
	if f == nil {
		return o
	}
	st, err := f.Stat()
	if err != nil || st.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 {
		return o
	}
	dev, ino, ok := inode(st)
	if !ok {
		return o
	}
	boot := mapped.BootID()
	copy(o[:], boot[:])
	binary.LittleEndian.PutUint64(o[16:], dev)
	binary.LittleEndian.PutUint64(o[24:], ino)
	return o
}

// newFile returns a File for the mapped file m.
func newFile(m image, id identity) *File {
	m.state, m.ring = m.mem[id.head:id.head+page], m.mem[id.head+page:]
	return &File{
		image: m, origin: id.origin, outputs: id.outputs,
		accepted: make([]uint64, len(id.outputs)), refused: make([]bool, len(id.outputs)),
	}
}

// load reads the state that a dead process has stored.
func (f *File) load() error {
	f.end, f.reach = *f.image.word(stateEnd), *f.image.word(stateReach)
	ring := uint64(len(f.image.ring))
	low := f.end
	for i := range f.accepted {
		f.accepted[i] = *f.image.word(stateAccepted + 8*i)
		low = min(low, f.accepted[i])
		if f.accepted[i] > f.end {
			return errors.New("a position is after the end")
		}
	}
	f.reach = max(f.reach, f.end) // a kill may occur between the stores of reach and end
	if f.end-low > ring || f.reach-low > ring {
		return errors.New("its contents exceed its size")
	}
	for n := f.reach; n > f.end; n-- { // find the end of a read that was in progress
		if f.image.ring[(n-1)%ring] != blank {
			f.end = n
			break
		}
	}
	f.start, f.returned = low, low
	if *f.image.word(stateLong) == low {
		f.longLines = 1 // make the first Settle replace the other position
	}
	return nil
}

// Name returns the name of the file. It begins with the creation time of the file.
func (f *File) Name() string { return filepath.Base(f.image.path) }

// From sets the source from which Read reads after the stored input. If onBroken is not nil, it is
// called when no more input can be stored.
func (f *File) From(src io.Reader, onBroken func(error)) {
	f.src, f.image.onBroken = src, onBroken
}

// InLongLine reports whether the stored input begins within a line that is too long. The rest of
// the line must be skipped.
func (f *File) InLongLine() bool {
	return f.start > 0 && (*f.image.word(stateLong) == f.start || *f.image.word(stateLong + 8) == f.start)
}

// Output returns the index of the named output. If the File has no such output, it returns -1.
func (f *File) Output(name string) int { return slices.Index(f.outputs, name) }

// Outputs returns the names of the outputs. The caller must not modify the slice.
func (f *File) Outputs() []string { return f.outputs }

// Held returns a copy of the input that the output has not accepted. After a memory fault it
// returns nil.
func (f *File) Held(output int) []byte {
	p := make([]byte, f.Pending(output))
	returned := f.returned
	defer func() { f.returned = returned }()
	f.returned = f.accepted[output]
	for done := 0; done < len(p); {
		n := f.copyOut(p[done:])
		if n == 0 {
			return nil
		}
		done += n
	}
	return p
}

// AcceptFirst is called when the output has accepted the first n bytes of [File.Held].
func (f *File) AcceptFirst(output, n int) {
	f.Accept(output, int64(f.accepted[output]+uint64(n)-f.start))
}

// Pending returns the number of bytes that the output has not accepted.
func (f *File) Pending(output int) uint64 { return f.end - f.accepted[output] }

// Continues reports whether a process with these options can continue f. The process must read from
// the same pipe or socket, and have the same outputs in the same order. The ring must be large
// enough.
func (f *File) Continues(o Options) bool {
	return f.origin != origin{} && f.origin == originOf(o.Input) && slices.Equal(f.outputs, o.Outputs) && len(f.image.ring) >= o.Bytes
}

// End returns the position of the end of the input.
func (f *File) End() int64 { return int64(f.end) }

// low returns the position up to which all outputs have accepted the input.
func (f *File) low() uint64 {
	low := f.end
	for _, at := range f.accepted {
		low = min(low, at)
	}
	return low
}

// Read returns the stored input, and then input from the source. Input from the source is stored in
// the file before Read returns it, unless the file is broken.
func (f *File) Read(p []byte) (n int, err error) {
	if f.returned < f.end && f.image.broken == nil {
		if n = f.copyOut(p); n > 0 {
			return n, nil
		}
		return 0, f.image.broken
	}
	if f.src == nil {
		return 0, io.EOF
	}
	if f.image.broken != nil || len(p) == 0 {
		return f.src.Read(p)
	}
	at := f.end % uint64(len(f.image.ring))
	room := uint64(len(f.image.ring)) - (f.end - f.low())
	into := f.image.ring[at:min(at+room, at+uint64(len(p)), uint64(len(f.image.ring)))]
	if f.image.check(len(into)); f.image.broken == nil {
		f.prepare(len(into))
	}
	if f.image.broken != nil {
		return f.src.Read(p)
	}
	n, err = f.src.Read(into)
	if errors.Is(err, syscall.EFAULT) {
		f.image.fail(errors.New("it was truncated"))
		return f.src.Read(p)
	}
	if n > 0 {
		f.commit(n)
		if n = f.copyOut(p); n == 0 {
			return 0, fmt.Errorf("input that was read is lost: %w", f.image.broken)
		}
	}
	return n, err
}

// Waits reports whether the next Read reads from the source, and may therefore block.
func (f *File) Waits() bool { return f.returned == f.end || f.image.broken != nil }

// prepare fills n bytes after f.end with the byte blank.
func (f *File) prepare(n int) {
	defer f.image.recoverFault(debug.SetPanicOnFault(true))
	if to := f.end + uint64(n); to > f.reach {
		for from := max(f.reach, f.end); from < to; {
			at := from % uint64(len(f.image.ring))
			part := f.image.ring[at:min(at+(to-from), uint64(len(f.image.ring)))]
			part[0] = blank
			for done := 1; done < len(part); done *= 2 {
				copy(part[done:], part[:done])
			}
			from += uint64(len(part))
		}
		f.reach = to
		atomic.StoreUint64(f.image.word(stateReach), to)
	}
}

// commit is called after n bytes were read into the ring. It stores the new end.
func (f *File) commit(n int) {
	defer f.image.recoverFault(debug.SetPanicOnFault(true))
	f.end += uint64(n)
	atomic.StoreUint64(f.image.word(stateEnd), f.end)
}

// copyOut copies to p the stored input that Read has not returned yet. After a memory fault it
// returns 0.
func (f *File) copyOut(p []byte) (n int) {
	defer f.image.recoverFault(debug.SetPanicOnFault(true))
	at := f.returned % uint64(len(f.image.ring))
	done := copy(p, f.image.ring[at:min(at+(f.end-f.returned), uint64(len(f.image.ring)))])
	f.returned += uint64(done)
	return done
}

// Settle is called when the outputs have accepted the input up to offset. Outputs for which Refuse
// was called are not affected. offset counts from the position at which this process has begun to
// read. inLong reports that offset is within a line that is too long.
func (f *File) Settle(offset int64, inLong bool) {
	if f.image.broken != nil {
		return
	}
	defer f.image.recoverFault(debug.SetPanicOnFault(true))
	if inLong { // the process may be killed before the positions of the outputs are stored, so do not replace the previous position within a line
		atomic.StoreUint64(f.image.word(stateLong+8*(f.longLines%2)), f.start+uint64(offset))
		f.longLines++
	}
	for i := range f.accepted {
		f.accept(i, offset)
	}
}

// Accept is called when the output has accepted the input up to offset. offset counts from the
// position at which this process has begun to read.
func (f *File) Accept(output int, offset int64) {
	if f.image.broken != nil {
		return
	}
	defer f.image.recoverFault(debug.SetPanicOnFault(true))
	f.accept(output, offset)
}

// accept implements Accept. The caller recovers from memory faults.
func (f *File) accept(output int, offset int64) {
	if at := f.start + uint64(offset); at > f.accepted[output] && !f.refused[output] {
		f.accepted[output] = at
		atomic.StoreUint64(f.image.word(stateAccepted+8*output), at)
	}
}

// Has reports whether the output has accepted the input up to offset. offset counts from the
// position at which this process has begun to read.
func (f *File) Has(output int, offset int64) bool {
	return f.accepted[output] >= f.start+uint64(offset)
}

// Refuse is called when the output accepts no more input from this process. The position of the
// output does not change any more.
func (f *File) Refuse(output int) { f.refused[output] = true }

// Refused reports whether [File.Refuse] was called for the output.
func (f *File) Refused(output int) bool { return f.refused[output] }

// Broken returns the reason why no more input is stored in the file, or nil.
func (f *File) Broken() error { return f.image.broken }

// Close closes the file. If all outputs have accepted all input, or the file is broken, Close also
// deletes it.
func (f *File) Close() {
	if (f.low() == f.end || f.image.broken != nil) && mapped.InPlace(f.image.file, f.image.path) {
		os.Remove(f.image.path)
	}
	f.image.release()
}
