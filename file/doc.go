// Package file provides destinations on the local machine: [File], a log file that is appended
// to, rotated and reopened, and [Stdio], standard output and standard error.
//
//	records ─▶ forebay.SlabWriter or Router ─▶ File ─▶ app.log
//	                                     └─▶ app-2026-11-20T13-44-10.000000-size.log.gz (rotation)
//
// A [File] is an io.WriteCloser with Sync. It is the destination of a forebay.SlabWriter or, for
// records that must be in the kernel when the call returns, a direct output of a Router:
//
//	f, err := file.Open("app.log", &file.Options{RotateBytes: 100 << 20, KeepFiles: 7})
//	if err != nil {
//		…
//	}
//	log, err := forebay.New(forebay.Writer(f, forebay.Direct(), forebay.CloseWriter()))
//
// A File starts a goroutine for OnError only while there are errors to report. With rotation, another
// goroutine compresses and removes old files after each rotation. Close waits for it.
package file
