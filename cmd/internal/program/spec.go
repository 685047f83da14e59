package program

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/internal/units"
	"github.com/forebay-log/forebay/slab"
)

// maxMemory is the most memory that the slabs of one destination may take. Beyond
// what a machine has, the Go runtime ends the program without a useful word.
const maxMemory = 64 << 30

// An outputConfig describes one output: its destination, the values of its options, and the records
// that it receives. Flags, queries of --to and configuration files set the options through
// [settings.set], by the names in the table [options].
type outputConfig struct {
	To string // the destination, without a query
	setting.Values

	item    *item     // its place in the configuration file, while that is read
	route   route     // the records that it receives
	secrets [32]byte  // a checksum of the files with keys and passwords, in a configuration file
	name    string    // of the output: of --to, or in a configuration file
	at      positions // of its keys, in a configuration file
	dryRun  bool      // nothing is sent

	onEvent func(batch.Event) // changes that a client makes by itself; nil: standard error
}

// newOutputConfig returns the defaults.
func newOutputConfig() outputConfig { return outputConfig{Values: setting.New()} }

// check looks at settings that must fit together. The error is about the command line.
func (c *outputConfig) check() error {
	if total := int64(c.Count("slabs")) * c.Bytes("slab-size"); total > maxMemory {
		return fmt.Errorf("--slabs %d of --slab-size %s need %s of memory for each destination: use %s or less",
			c.Count("slabs"), units.FlagSize(c.Bytes("slab-size")), units.FlagSize(total), units.FlagSize(maxMemory))
	}
	if c.spills() && c.Text("spool") == "" {
		return fmt.Errorf("--when-full spill needs --spool DIR")
	}
	return nil
}

// spills reports whether lines go to the spool when the slabs are full.
func (c *outputConfig) spills() bool { return c.WhenFull() == slab.Spill() }

// encoding returns what lines are delivered as.
func (c *outputConfig) encoding() record.Encoding {
	e, _ := record.ParseEncoding(c.Text("encode"))
	return e
}

// keepsLines reports whether lines may be left for the next run.
func (c *outputConfig) keepsLines() bool { return c.Text("spool") != "" || c.Text("crash-safe") != "" }

// delivers reports whether an option says how it delivers, apart from --crash-safe.
func (c *outputConfig) delivers() bool {
	return c.Text("fallback") != "" || c.Text("spool") != "" || c.Text("dead-letter") != "" || c.Given["retry-age"]
}

// maxAge is deliver.RetryOptions.MaxAge.
func (c *outputConfig) maxAge() time.Duration {
	if age := c.Duration("retry-age"); age != 0 {
		return age
	}
	return -1
}

// slabOptions returns the options of the memory of an output, whose directories have
// that name. No line is longer than maxRecord.
func (c *outputConfig) slabOptions(dir string, t *target, maxRecord int) *slab.Options {
	o := &slab.Options{
		SlabBytes:     int(c.Bytes("slab-size")),
		SlabCount:     c.Count("slabs"),
		FlushInterval: max(c.Duration("flush-interval"), time.Microsecond), // 0 is "at once" here
		WhenFull:      c.WhenFull(),
		Codec:         c.encoding().Codec(),
	}
	if c.Text("crash-safe") != "" {
		o.Crash = slab.CrashSafe(filepath.Join(c.Text("crash-safe"), dir))
		o.Crash.Required = c.On("crash-safe-required")
		if t.newEncoder == nil { // it takes lines of any kind, such as those of another --encode
			o.Crash.Codec = lineCodec
		}
	}
	if !c.Given["slabs"] && !c.Given["slab-size"] {
		o.SlabCount = max(o.SlabCount, t.memory/o.SlabBytes)
	}
	if t.engine {
		o.FlushLevel = slab.NoFlushLevel
	}
	switch {
	case t.newEncoder != nil:
		o.MaxRecord, o.Codec = slab.MaxSlabBytes, t.codec
	case c.encoding() == record.AsRaw:
		o.MaxRecord = maxRecord + len("\r\n")
	default:
		// A line at the limit may grow: "\u0000" stands for one byte.
		o.MaxRecord = min(6*maxRecord+4<<10, slab.MaxSlabBytes)
	}
	return o
}

// lineCodec returns the codec of a form whose records are lines.
func lineCodec(contentType string, _ uint32) (batch.Codec, bool) {
	if contentType == "" {
		return nil, true
	}
	return encode.CodecFor(contentType)
}

// memory describes what an output takes.
func memory(o *slab.Options) string {
	return fmt.Sprintf("%d × %s", o.SlabCount, units.Size(float64(o.SlabBytes)))
}
