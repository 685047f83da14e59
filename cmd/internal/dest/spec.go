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

// maxMemory is the maximum size of the slabs of one destination. On a machine with less memory than
// requested, the Go runtime would end the program without a useful message.
const maxMemory = 64 << 30

// A Spec describes one output: its destination, the values of its options, and the records that it
// receives. Flags, the query of --to and configuration files set the options by name; see
// [setting.Options].
type Spec struct {
	To string // the address without the query
	setting.Values

	Route   Route     // selects the records that the output receives
	Secrets [32]byte  // checksum of the files with keys and passwords; zero without a configuration file
	Name    string    // the value of --to, or the name in a configuration file
	At      Positions // positions of its keys in a configuration file
	DryRun  bool      // print the records instead of sending them

	OnEvent func(batch.Event) // receives events of the client; nil writes them to standard error
}

// NewSpec returns a Spec with the defaults of all options.
func NewSpec() Spec { return Spec{Values: setting.New()} }

// Check checks combinations of options. Its errors name flags.
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

// spills reports whether records are moved to the spool while the slabs are full.
func (c *Spec) spills() bool { return c.WhenFull() == slab.Spill() }

// Encoding returns the format in which lines are delivered.
func (c *Spec) Encoding() record.Encoding {
	e, _ := record.ParseEncoding(c.Text("encode"))
	return e
}

// KeepsLines reports whether undelivered lines are kept for the next run.
func (c *Spec) KeepsLines() bool { return c.Text("spool") != "" || c.Text("crash-safe") != "" }

// Delivers reports whether any option for failed deliveries is set: --fallback, --spool,
// --dead-letter or --retry-age. An output with such an option has retries. --crash-safe is not such
// an option.
func (c *Spec) Delivers() bool {
	return c.Text("fallback") != "" || c.Text("spool") != "" || c.Text("dead-letter") != "" || c.Given["retry-age"]
}

// MaxAge returns --retry-age for deliver.RetryOptions.MaxAge. The flag's 0 means no limit, which
// MaxAge represents by a negative value.
func (c *Spec) MaxAge() time.Duration {
	if age := c.Duration("retry-age"); age != 0 {
		return age
	}
	return -1
}

// SlabOptions returns the options of the memory of the output. dir is the name of its directory
// within --crash-safe, and maxRecord the maximum length of a line.
func (c *Spec) SlabOptions(dir string, t *Target, maxRecord int) *slab.Options {
	o := &slab.Options{
		SlabBytes:     int(c.Bytes("slab-size")),
		SlabCount:     c.Count("slabs"),
		FlushInterval: max(c.Duration("flush-interval"), time.Microsecond), // the flag's 0 means immediately; 0 would select the default of package slab
		WhenFull:      c.WhenFull(),
		Codec:         c.Encoding().Codec(),
	}
	if c.Text("crash-safe") != "" {
		o.Crash = &slab.Crash{Dir: filepath.Join(c.Text("crash-safe"), dir)}
		o.Crash.Required = c.On("crash-safe-required")
		if t.NewEncoder == nil { // the destination accepts lines of any format
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
		// One byte of a line may become six bytes of the record, such as \u0000.
		o.MaxRecord = min(6*maxRecord+4<<10, layout.MaxSlabBytes)
	}
	return o
}

// lineCodec returns the codec for a content type whose records are lines.
func lineCodec(contentType string, _ uint32) (batch.Codec, bool) {
	if contentType == "" {
		return nil, true
	}
	return encode.CodecFor(contentType)
}

// Memory formats the size of the memory of an output.
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

// KeptIn returns the directories that contain the pending records p, for messages.
func (c *Spec) KeptIn(p batch.Pending) string {
	switch {
	case p.Slab == 0:
		return c.Text("spool")
	case p.Spill == 0:
		return c.Text("crash-safe")
	}
	return c.Text("spool") + " and " + c.Text("crash-safe")
}

// IsSafeName reports whether name may be a result of SafeName.
func IsSafeName(name string) bool {
	i := strings.LastIndexByte(name, '-')
	sum, err := hex.DecodeString(name[i+1:])
	return i > 0 && err == nil && len(sum) == 4
}

// SafeName returns a directory name for a destination. It is readable and contains no secrets. It
// ends in a checksum of the destination, so that different destinations have different directories.
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

// Positions contains the positions of keys in a configuration file, as LINE:COLUMN.
type Positions map[string]string

// SecretFiles returns the files with keys, passwords and certificates that options name.
func (c *Spec) SecretFiles() (files []string) {
	for _, o := range setting.Options {
		if o.OfFile && o.Name != "bearer-token-file" { // clients reload this file when it changes
			files = append(files, c.Text(o.Name))
		}
	}
	return files
}
