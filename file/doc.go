// Package file provides destinations on the local machine: [File], a log file that is appended
// to, rotated and reopened, and [Stdio], standard output and standard error.
//
//	records ─▶ slab.Writer or Router ─▶ File ─▶ app.log
//	                                     └─▶ app-2026-11-20T13-44-10.000000.log.gz (rotation)
//
// A [File] is an io.WriteCloser with Sync. It is the destination of a slab.Writer or, for
// records that must be in the kernel when the call returns, a direct output of a Router:
//
//	f, err := file.Open("app.log", &file.Options{RotateBytes: 100 << 20, KeepFiles: 7})
//	if err != nil {
//		…
//	}
//	log, err := forebay.New(forebay.Writer(f, forebay.Direct(), forebay.CloseWriter()))
//
// A File starts a goroutine for OnError only while there are errors to report. With rotation,
// a goroutine of github.com/DeRuina/timberjack compresses and removes old files until Close.
//
// Timberjack renames, compresses and removes old files. This package writes, because timberjack
// would open new files without O_APPEND, reject records larger than the limit, rotate in the middle
// of a partly written record, and reopen a closed file.
package file
