package dest

import "github.com/forebay-log/forebay/file"

// earlyStep is the number of bytes after which writing to disk begins.
const earlyStep = 8 << 20

// An earlyFile is a File that is written to disk while it grows, so that the sync at the end, when
// the Output is closed, is short even for a large file.
type earlyFile struct {
	*file.File
	path  string
	bytes int // since the last call of BeginSync
}

func (f *earlyFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	f.wrote(n)
	return n, err
}

func (f *earlyFile) Writev(bufs [][]byte) (int64, error) {
	n, err := f.File.Writev(bufs)
	f.wrote(int(n))
	return n, err
}

func (f *earlyFile) wrote(n int) {
	if f.bytes += n; f.bytes >= earlyStep {
		f.bytes = 0
		BeginSync(f.path)
	}
}
