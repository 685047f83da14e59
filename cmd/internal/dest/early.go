package dest

import "github.com/forebay-log/forebay/file"

// earlyStep is the number of bytes after which writing to disk begins.
const earlyStep = 8 << 20

// An earlyFile is a File that the disk begins to write while it grows. Closing an Output
// syncs its file; of a large one nearly everything is on the disk by then.
type earlyFile struct {
	*file.File
	path  string
	bytes int // since writing to disk began
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
