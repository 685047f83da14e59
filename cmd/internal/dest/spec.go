package dest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/internal/units"
	"github.com/forebay-log/forebay/slab"
	"github.com/forebay-log/forebay/spool"
)

// maxMemory is the maximum size of all slabs of one destination. A larger value is probably a
// mistake, and the Go runtime would end the program with an unhelpful message.
const maxMemory = 64 << 30

// A Spec describes one output: its destination, its options, and the records that it receives.
// Flags, the query part of the address in --to, and configuration files set the options by name;
// see [setting.Options].
type Spec struct {
	To string // address without the query
	setting.Values

	Route   Route     // records that the output receives
	Secrets [32]byte  // checksum of the files with keys and passwords; zero if flags describe the output
	Name    string    // value of --to, or name in a configuration file
	At      Positions // positions of the keys in a configuration file
	DryRun  bool      // print the records instead of sending them

	OnEvent func(batch.Event) // receives events of the driver; nil: they are written to standard error
}

// NewSpec returns a Spec with the defaults of all options.
func NewSpec() Spec { return Spec{Values: setting.New()} }

// Check checks combinations of options. Its errors contain names of flags.
func (c *Spec) Check() error {
	if total := int64(c.Count("slabs")) * c.Bytes("slab-size"); total > maxMemory {
		return fmt.Errorf("--slabs %d of --slab-size %s need %s of memory for each destination: use %s or less",
			c.Count("slabs"), units.FlagSize(c.Bytes("slab-size")), units.FlagSize(total), units.FlagSize(maxMemory))
	}
	if c.spills() && c.Text("spool") == "" {
		return fmt.Errorf("--when-full spill needs --spool DIR")
	}
	return nil
}

// spills reports whether records move to the spool while the memory of the output is full.
func (c *Spec) spills() bool { return c.WhenFull() == slab.Spill() }

// Encoding returns the format in which lines are delivered.
func (c *Spec) Encoding() record.Encoding {
	e, _ := record.ParseEncoding(c.Text("encode"))
	return e
}

// KeepsLines reports whether undelivered lines are stored for the next run.
func (c *Spec) KeepsLines() bool { return c.Text("spool") != "" || c.Text("crash-safe") != "" }

// Delivers reports whether an option for failed deliveries is set: --fallback, --spool,
// --dead-letter or --retry-age. With such an option, the output retries failed deliveries.
func (c *Spec) Delivers() bool {
	return c.Text("fallback") != "" || c.Text("spool") != "" || c.Text("dead-letter") != "" || c.Given["retry-age"]
}

// MaxAge returns --retry-age as deliver.RetryOptions.MaxAge, in which a negative value means no
// limit. For the flag, 0 means no limit.
func (c *Spec) MaxAge() time.Duration {
	if age := c.Duration("retry-age"); age != 0 {
		return age
	}
	return -1
}

// SlabOptions returns the options for the memory of the output. dir is the name of its directory in
// --crash-safe, and maxRecord is the maximum length of a line.
func (c *Spec) SlabOptions(dir string, t *Target, maxRecord int) *slab.Options {
	o := &slab.Options{
		SlabBytes:     int(c.Bytes("slab-size")),
		SlabCount:     c.Count("slabs"),
		FlushInterval: max(c.Duration("flush-interval"), time.Microsecond), // 0 means immediately, but package slab would use its default
		WhenFull:      c.WhenFull(),
		Codec:         c.Encoding().Codec(),
	}
	if c.Text("crash-safe") != "" {
		o.Crash = &slab.Crash{Dir: filepath.Join(c.Text("crash-safe"), dir)}
		o.Crash.Required = c.On("crash-safe-required")
		if t.NewEncoder == nil { // the destination accepts all formats of lines
			o.Crash.Codec = lineCodec
		}
	}
	if !c.Given["slabs"] && !c.Given["slab-size"] {
		o.SlabCount = max(o.SlabCount, t.memory/o.SlabBytes)
	}
	if t.Remote {
		o.FlushLevel = slab.NoFlushLevel
	}
	switch {
	case t.NewEncoder != nil:
		o.MaxRecord, o.Codec = layout.MaxSlabBytes, t.Codec
	case c.Encoding() == record.AsRaw:
		o.MaxRecord = maxRecord + len("\r\n")
	default:
		// A byte of a line may become six bytes of a record, such as \u0000.
		o.MaxRecord = min(6*maxRecord+4<<10, layout.MaxSlabBytes)
	}
	return o
}

// lineCodec returns the codec for contentType, whose records are lines.
func lineCodec(contentType string, _ uint32) (batch.Codec, bool) {
	if contentType == "" {
		return nil, true
	}
	return encode.CodecFor(contentType)
}

// Memory describes the number and size of the slabs in o.
func Memory(o *slab.Options) string {
	return fmt.Sprintf("%d × %s", o.SlabCount, units.Size(float64(o.SlabBytes)))
}

// SpoolOptions returns the options of package spool.
func (c *Spec) SpoolOptions() spool.Options {
	o := spool.Options{MaxBytes: c.Bytes("spool-max")}
	if c.On("fsync") {
		o.Sync = "always"
	}
	return o
}

// KeptIn returns the directories with the pending records p, for messages.
func (c *Spec) KeptIn(p batch.Pending) string {
	switch {
	case p.Slab == 0:
		return c.Text("spool")
	case p.Spill == 0:
		return c.Text("crash-safe")
	}
	return c.Text("spool") + " and " + c.Text("crash-safe")
}

// IsSafeName reports whether name may be a result of [SafeName].
func IsSafeName(name string) bool {
	i := strings.LastIndexByte(name, '-')
	sum, err := hex.DecodeString(name[i+1:])
	return i > 0 && err == nil && len(sum) == 4
}

// SafeName returns a directory name for a destination. The name is readable, and contains no
// secrets. It ends in a checksum, so that different destinations have different names.
func SafeName(to string) string {
	const readable = 60
	safe := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-':
			return r
		}
		return '_'
	}, setting.Redact(to))
	safe = strings.TrimLeft(safe[max(0, len(safe)-readable):], ".")
	sum := sha256.Sum256([]byte(to))
	return safe + "-" + hex.EncodeToString(sum[:4])
}

// DeadLetterName is the name of the file for refused records in the spool of an output. Package
// deliver chooses it.
const DeadLetterName = "dead-letters.jsonl"

// Positions contains the positions of keys in a configuration file, in the format LINE:COLUMN.
type Positions map[string]string

// SecretFiles returns the names of the files with keys, passwords and certificates.
func (c *Spec) SecretFiles() (files []string) {
	for _, o := range setting.Options {
		if o.OfFile && o.Name != "bearer-token-file" { // drivers read this file again when it changes
			files = append(files, c.Text(o.Name))
		}
	}
	return files
}
