package slab

import "github.com/forebay-log/forebay/batch"

// Crash makes the slabs of an output survive the death of the process. The slabs are in a file that
// is mapped into memory: as soon as a write has returned, its record is in the page cache, which
// survives the process. It works on Linux and macOS. On other systems the slabs are on the heap,
// and an event reports this. If Required is set, the constructor of the output fails instead. The
// layout of the file is described in docs/format/crash-slabs.md.
//
// It protects against SIGKILL, the OOM killer, panics, os.Exit and fatal errors of the
// runtime. It does not protect against loss of power or a kernel crash. The file,
// with all slabs, must stay below 2 GiB.
//
// A record may arrive twice when one process takes over from another: batch.Batch.Origin and the
// ticket identify such duplicates. The consumer reads a copy of each slab, because a read of the
// mapping would kill this process (SIGBUS) if another process truncated the file.
type Crash struct {
	// Dir is the directory of the file. It is required. It is created (0700) if it is missing, and
	// searched for files of dead processes. Give each output a separate directory, because the
	// first output that opens a directory delivers all records in it. A tmpfs is the best place: on
	// a busy disk, a store into a mapped page can stall while the page is written back.
	Dir string
	// Required makes the constructor of the output fail if the file cannot be created. It also
	// drops a record that is larger than a slab, as dropped{failed}, if the disk has no room for
	// it. Default false: if the file cannot be created, that is reported once, the slabs are on the
	// heap, and Stats.CrashUnsafe is set; a larger record for which the disk has no room is kept in
	// memory only and counted in Stats.HeapOnly.
	Required bool
	// Codec is called for a file with another content type than Options.Codec, or with a newer
	// schema. It returns the codec and true if the destination accepts such records unchanged;
	// their batches then have that codec. Default nil: such files are reported and not changed.
	Codec func(contentType string, schema uint32) (batch.Codec, bool)
}
