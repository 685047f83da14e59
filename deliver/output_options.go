package deliver

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/callback"
	"github.com/forebay-log/forebay/internal/closetime"
	"github.com/forebay-log/forebay/internal/diskqueue"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/slablog"
	"github.com/forebay-log/forebay/slab"
	"github.com/forebay-log/forebay/spool"
)

const (
	defaultBufferBytes = 512 << 10 // the memory with the default slab.Options
	minBufferRecords   = 5         // two slabs of two records, and one record larger than a slab
)

// deadLetterName is the name of the file for refused records in OutputOptions.SpoolDir.
const deadLetterName = "dead-letters.jsonl"

// OutputOptions configures an [Output]. The zero value is useful: each field states
// its default and unit.
type OutputOptions struct {
	// Name is the name in events, reports and Stats. Default "deliver".
	Name string
	// Codec is the codec of the records. It also renders gap markers, which report dropped records
	// to the destination. Default nil: plain bytes, no markers.
	Codec batch.Codec
	// CodecFor returns the codec of records that an earlier process has stored, by content type and
	// schema version, or nil if these are unknown. Default nil: Codec, if it has that content type.
	CodecFor func(contentType string, schema uint32) batch.Codec

	// Slab configures the memory. Its fields Name, Codec and CloseTimeout are not used. Default:
	// the defaults of its fields.
	Slab slab.Options
	// BufferBytes is the memory in bytes. It sets Slab.SlabCount if that is 0. If
	// Deliver.ParkedBytes is 0, it is set to at most a quarter of BufferBytes. Parked records use
	// memory in addition to BufferBytes. Default 0: the default of Slab.SlabCount.
	BufferBytes int
	// BufferRecords is the maximum number of records of this process in memory, including those in
	// flight. It is never exceeded. Slab.WhenFull may apply at about four fifths of the limit,
	// because the limit is divided among the slabs. If necessary, the memory is divided into fewer
	// and larger slabs, so that each slab holds at least four records. Parked records are not
	// counted. At least 5; it sets Slab.SlabRecords if that is 0. Default 0: limited by the memory
	// only.
	BufferRecords int
	// CrashDir is a directory for files that contain the memory, so that the records in memory
	// survive the death of the process. It is a short form of Slab.Crash. Default "": none.
	CrashDir string

	// Deliver configures the delivery: retry, circuit, error handler. Default: the defaults of its
	// fields.
	Deliver Options
	// FallbackFile is a file for records that the destination does not accept while it is down. An
	// error handler appends them as JSON lines (0600), so the option excludes Deliver.Handler.
	// Records that are in flight when the destination hangs come after later ones. Default "": none.
	FallbackFile string
	// DeadLetterFile is the file for refused records, and for records above Slab.MaxRecord, as JSON
	// lines (0600). Excludes Deliver.DeadLetter. Default "": the file dead-letters.jsonl in
	// SpoolDir, created at the first record, or none if there is no SpoolDir. To have a SpoolDir
	// but no dead-letter file, set it to os.DevNull.
	DeadLetterFile string

	// SpoolDir is a directory for records that neither the destination nor the handler accepts.
	// Records that Close could not deliver stay there until the next start. Default "": none.
	SpoolDir string
	// Spool configures the spool in SpoolDir. Its fields Name, Streams and Codec are not used; the
	// default of Accepts is Traits.Accepts of the destination. Default: the defaults of its fields.
	Spool spool.Options

	// CloseTimeout bounds Close, Sync, and a Shutdown whose context has no deadline.
	// Default 5 s.
	CloseTimeout time.Duration
	// OnError receives the events of memory, delivery and spool. If a part has its own function
	// (Slab.OnError, Deliver.OnError, Spool.OnEvent), that function receives the events of that
	// part instead. Each part calls it on a separate goroutine behind a bounded queue. Default nil:
	// a line on standard error.
	OnError func(batch.Event)
}

// withDefaults returns o with the defaults of all fields. The driver sets its defaults first; then
// come the fields whose default depends on another field. The error names each invalid field.
func (o *OutputOptions) withDefaults(dest Destination) (r OutputOptions, err error) {
	if o != nil {
		r = *o
	}
	if r.OnError == nil {
		r.OnError = callback.ToStderr[batch.Event]
	}
	var t Traits
	if dest != nil {
		t = dest.Traits()
	}
	if t.Defaults != nil {
		t.Defaults(&r)
	}
	r.Name = cmp.Or(r.Name, "deliver")
	r.CloseTimeout = cmp.Or(r.CloseTimeout, closetime.Default)

	m := &r.Slab
	m.Name, m.Codec, m.CloseTimeout = r.Name, r.Codec, r.CloseTimeout
	if m.OnError == nil {
		m.OnError = r.OnError
	}
	if r.BufferRecords > 0 {
		r.BufferBytes = cmp.Or(r.BufferBytes, defaultBufferBytes)
	}
	if r.BufferBytes > 0 && m.SlabCount == 0 {
		m.SlabBytes = cmp.Or(m.SlabBytes, layout.DefaultSlabBytes)
		if half := r.BufferBytes / 2; half >= layout.MinSlabBytes {
			m.SlabBytes = min(m.SlabBytes, half)
		}
		m.SlabCount = max(2, r.BufferBytes/m.SlabBytes)
	}
	if r.BufferBytes > 0 {
		r.Deliver.ParkedBytes = cmp.Or(r.Deliver.ParkedBytes, min(defaultParkedBytes, max(1, r.BufferBytes/4)))
	}
	if n := r.BufferRecords - 1; n >= 4 { // one record may be larger than a slab
		m.SlabBytes = cmp.Or(m.SlabBytes, layout.DefaultSlabBytes)
		count := min(m.SlabCount, max(2, n/4))
		m.SlabBytes = min(m.SlabBytes*m.SlabCount/count, layout.MaxSlabBytes)
		m.SlabCount = count
		m.SlabRecords = cmp.Or(m.SlabRecords, n/count)
	}
	m.MaxRecord = cmp.Or(m.MaxRecord, layout.DefaultMaxRecord)
	spills := m.WhenFull == slab.Spill() || m.ImportantWhenFull == slab.Spill()

	d := &r.Deliver
	d.name = r.Name
	if d.OnError == nil {
		d.OnError = r.OnError
	}

	s := &r.Spool
	s.Name, s.Codec, s.Streams = r.Name, r.codecFor(), t.Dictionary
	if s.Accepts == nil && t.Accepts != nil {
		s.Accepts = func(contentType string, _ uint32) bool { return t.Accepts(contentType) }
	}
	if s.OnEvent == nil {
		s.OnEvent = r.OnError
	}

	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("deliver: "+format, args...)) }
	const both = "%s and %s are both set; use one of them"
	if r.FallbackFile != "" && d.Handler != nil {
		bad(both, "FallbackFile", "Deliver.Handler")
	}
	if r.DeadLetterFile != "" && d.DeadLetter != nil {
		bad(both, "DeadLetterFile", "Deliver.DeadLetter")
	}
	if r.CrashDir != "" && m.Crash != nil {
		bad(both, "CrashDir", "Slab.Crash")
	}
	if spills && r.SpoolDir == "" && d.spill == nil {
		bad("Slab.WhenFull is spill, but there is no SpoolDir")
	}
	if r.BufferRecords != 0 && r.BufferRecords < minBufferRecords {
		bad("BufferRecords is %d, must be 0 or at least %d", r.BufferRecords, minBufferRecords)
	}
	if r.CloseTimeout < 0 {
		bad("CloseTimeout is %v, must be more than 0", r.CloseTimeout)
		m.CloseTimeout = 0
	}
	if r.BufferBytes < 0 {
		bad("BufferBytes is %d, must be 0 or more", r.BufferBytes)
	}
	if dest == nil {
		bad("the destination is nil")
	}
	if r.CrashDir != "" && m.Crash == nil {
		m.Crash = &slab.Crash{Dir: r.CrashDir}
		if codecFor := r.CodecFor; codecFor != nil {
			m.Crash.Codec = func(contentType string, schema uint32) (batch.Codec, bool) {
				c := codecFor(contentType, schema)
				return c, c != nil
			}
		}
	}
	if _, err := slablog.Resolve(*m); err != nil {
		errs = append(errs, err)
	}
	return r, errors.Join(errs...)
}

// codecFor returns CodecFor, or its default if that is nil.
func (o *OutputOptions) codecFor() func(string, uint32) batch.Codec {
	if o.CodecFor != nil {
		return o.CodecFor
	}
	own := o.Codec
	return func(form string, _ uint32) batch.Codec {
		if own != nil && own.ContentType() == form {
			return own
		}
		return nil
	}
}

// files are the files of an Output. The outlet writes to them, and the Output closes them, because
// the outlet may hang at that time.
type files struct {
	spool *diskqueue.Spool // nil: none
	lines []io.Closer      // the dead-letter file and the fallback file
}

// open opens the files named in o and sets the fields of o.Deliver that use them. The error names
// each file that cannot be opened; all other files are open.
func (f *files) open(o *OutputOptions) error {
	var errs []error
	bad := func(field string, err error) {
		errs = append(errs, fmt.Errorf("deliver: cannot open %s: %w", field, err))
	}
	if o.FallbackFile != "" {
		fallback := &appendFile{path: o.FallbackFile}
		if err := fallback.open(); err != nil {
			bad("FallbackFile", err)
		}
		f.lines = append(f.lines, fallback)
		o.Deliver.Handler = JSONLines(fallback)
	}
	if o.SpoolDir != "" {
		var err error
		if f.spool, err = diskqueue.Open(o.SpoolDir, &o.Spool); err != nil {
			bad("SpoolDir", err)
		} else {
			o.Deliver.spill = f.spool
		}
	}
	letters := &appendFile{path: o.DeadLetterFile}
	if letters.path != "" {
		if err := letters.open(); err != nil {
			bad("DeadLetterFile", err)
		}
	} else if o.SpoolDir != "" && o.Deliver.DeadLetter == nil {
		letters.path = filepath.Join(o.SpoolDir, deadLetterName) // the file is opened when the first record is written
	}
	if letters.path != "" {
		f.lines = append(f.lines, letters)
		o.Deliver.DeadLetter = DeadLetters(letters, o.Name)
	}
	return errors.Join(errs...)
}

// close closes the open files. They must no longer be in use.
func (f *files) close() error {
	var errs []error
	if f.spool != nil {
		errs = append(errs, f.spool.Close())
	}
	for _, c := range f.lines {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
