package dest

import "github.com/forebay-log/forebay/file"

// writebackStep is the number of bytes after which writeback to the disk is started.
const writebackStep = 8 << 20

// A writebackFile is a File that starts writeback to the disk while it grows. The sync in Close is
// therefore fast even for a large file.
type writebackFile struct {
	*file.File
	path  string
	bytes int // bytes written after the last call of BeginSync
}

func (f *writebackFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	f.wrote(n)
	return n, err
}

func (f *writebackFile) Writev(bufs [][]byte) (int64, error) {
	n, err := f.File.Writev(bufs)
	f.wrote(int(n))
	return n, err
}

func (f *writebackFile) wrote(n int) {
	if f.bytes += n; f.bytes >= writebackStep {
		f.bytes = 0
		BeginSync(f.path)
	}
}
