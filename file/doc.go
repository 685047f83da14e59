// Package file has destinations on this machine: [File], a log file that is
// appended to, rotated and reopened, and [Stdio], standard output and error.
//
// A [File] is an io.WriteCloser with Sync and goes behind a slab.Writer or, for
// records that must be in the kernel when the call returns, straight into a
// Router. It starts no goroutine but the one that OnError runs on while there is
// something to tell; with rotation configured, one belonging to
// github.com/DeRuina/timberjack compresses and removes old files until Close.
//
// Timberjack names, moves, compresses and removes old files. It does not write:
// it would open new files without O_APPEND, refuse records larger than the
// limit, rotate in the middle of a record whose first half is written, and
// reopen what was closed. All that happens here.
package file
