package tail

import (
	"hash/crc32"
	"io"
	"os"
)

// A file is recognized by its device and inode. Because inodes are reused and files are truncated,
// it is also recognized by two checksums: of its first headBytes bytes, and of the tailBytes bytes
// before a position.
const (
	headBytes = 256
	tailBytes = 64
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(p []byte) uint32 { return crc32.Checksum(p, castagnoli) }

// An id identifies a file on this machine. On systems without inodes it is derived from the path.
type id struct{ dev, ino uint64 }

// deletedID is stored instead of the id of a file that was deleted while it was followed.
var deletedID id

// isAt reports whether fileID is the file at path.
func isAt(path string, fileID id) bool {
	st, err := os.Stat(path)
	return err == nil && idOf(path, st) == fileID
}

// A head is the checksum of the first n bytes of a file.
type head struct {
	n   int // at most headBytes
	sum uint32
}

// A position is an offset in a file, and the checksum of up to tailBytes bytes before the offset.
type position struct {
	off int64
	sum uint32
}

// positionIn returns the position of p[at] in the file. base is the offset of p[0] in the file. p
// must contain the tailBytes bytes before p[at], or all bytes of the file before p[at].
func positionIn(p []byte, at int, base int64) position {
	return position{base + int64(at), sum(p[max(0, at-tailBytes):at])}
}

// positionAt returns the position at offset off of the file r.
func positionAt(r io.ReaderAt, off int64) (position, error) {
	var buf [tailBytes]byte
	n := int(min(off, tailBytes))
	_, err := r.ReadAt(buf[:n], off-int64(n))
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return position{off, sum(buf[:n])}, err
}

// headOf returns the head of the first n bytes of the file r, at most headBytes.
func headOf(r io.ReaderAt, n int64) (head, error) {
	var buf [headBytes]byte
	m := int(min(n, headBytes))
	_, err := r.ReadAt(buf[:m], 0)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return head{m, sum(buf[:m])}, err
}

// matches reports whether the beginning of r has the checksum h.
func (h head) matches(r io.ReaderAt) bool {
	got, err := headOf(r, int64(h.n))
	return err == nil && got == h
}

// contains reports whether the content of the file r has the checksums in h and m. If r is too
// short, it returns false without an error.
func contains(r io.ReaderAt, h head, m position) (bool, error) {
	gotHead, err := headOf(r, int64(h.n))
	if err == nil && gotHead == h {
		var gotMark position
		if gotMark, err = positionAt(r, m.off); err == nil {
			return gotMark == m, nil
		}
	}
	if err == io.ErrUnexpectedEOF {
		err = nil
	}
	return false, err
}

// isFile reports whether the content of the file at path has the checksums in h and m. It returns
// false for an empty h, because every file matches the checksum of zero bytes.
func isFile(path string, h head, m position) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	ok, _ := contains(f, h, m)
	return ok && h.n > 0
}
