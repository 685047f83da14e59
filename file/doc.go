// Package file provides a destination on the local machine: [File], a log file that is appended
// to, rotated and reopened.
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
// # Guarantees
//
// Records are never split between two files. A write that fails, for example because the disk is
// full, is continued at the byte where it stopped. If a crashed process has left an incomplete
// line, the line is ended before the next record. With Options.Sync "always", records are on stable
// storage when Write returns. With "never", they survive the death of the process, but they survive
// a loss of power only after the system has written them.
//
// # Concurrency
//
// One lock is held during each write, so that rotation and reopening happen between two records.
// A File compresses and removes old files in a goroutine that runs only while there is work, and
// for which Close waits. It calls OnError in another goroutine. It checks the path of an idle
// file with a timer.
package file
