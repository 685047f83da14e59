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
	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/internal/units"
	"github.com/forebay-log/forebay/slab"
	"github.com/forebay-log/forebay/spool"
)

// maxMemory is the maximum size of the slabs of one destination. If a machine has less memory, the
// Go runtime ends the program without a useful message.
const maxMemory = 64 << 30

// A Spec describes one output: its destination, the values of its options, and the records that it
// receives. Flags, queries of --to and configuration files set the options by name; see
// [setting.Options].
type Spec struct {
	To string // the destination, without a query
	setting.Values

	Route   Route     // the records that it receives
	Secrets [32]byte  // a checksum of the files with keys and passwords, if there is a configuration file
	Name    string    // the value of --to, or the name in a configuration file
	At      Positions // positions of its keys in a configuration file
	DryRun  bool      // nothing is sent

	OnEvent func(batch.Event) // receives events of a client about changes that the client makes; nil: standard error
}

// NewSpec returns the defaults.
func NewSpec() Spec { return Spec{Values: setting.New()} }

// Check checks options that depend on each other. The error is about the command line.
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

// spills reports whether lines are moved to the spool when the slabs are full.
func (c *Spec) spills() bool { return c.WhenFull() == slab.Spill() }

// Encoding returns the format in which lines are delivered.
func (c *Spec) Encoding() record.Encoding {
	e, _ := record.ParseEncoding(c.Text("encode"))
	return e
}

// KeepsLines reports whether lines may be left for the next run.
func (c *Spec) KeepsLines() bool { return c.Text("spool") != "" || c.Text("crash-safe") != "" }

// Delivers reports whether any option of delivery is set, apart from --crash-safe.
func (c *Spec) Delivers() bool {
	return c.Text("fallback") != "" || c.Text("spool") != "" || c.Text("dead-letter") != "" || c.Given["retry-age"]
}

// MaxAge returns the value for deliver.RetryOptions.MaxAge.
func (c *Spec) MaxAge() time.Duration {
	if age := c.Duration("retry-age"); age != 0 {
		return age
	}
	return -1
}

// SlabOptions returns the options of the memory of an output whose directories have the name dir.
// No line is longer than maxRecord.
func (c *Spec) SlabOptions(dir string, t *Target, maxRecord int) *slab.Options {
	o := &slab.Options{
		SlabBytes:     int(c.Bytes("slab-size")),
		SlabCount:     c.Count("slabs"),
		FlushInterval: max(c.Duration("flush-interval"), time.Microsecond), // 0 is "at once" here
		WhenFull:      c.WhenFull(),
		Codec:         c.Encoding().Codec(),
	}
	if c.Text("crash-safe") != "" {
		o.Crash = slab.CrashSafe(filepath.Join(c.Text("crash-safe"), dir))
		o.Crash.Required = c.On("crash-safe-required")
		if t.NewEncoder == nil { // it accepts lines of any format, whatever its --encode
			o.Crash.Codec = lineCodec
		}
	}
	if !c.Given["slabs"] && !c.Given["slab-size"] {
		o.SlabCount = max(o.SlabCount, t.memory/o.SlabBytes)
	}
	if t.Engine {
		o.FlushLevel = slab.NoFlushLevel
	}
	switch {
	case t.NewEncoder != nil:
		o.MaxRecord, o.Codec = slab.MaxSlabBytes, t.Codec
	case c.Encoding() == record.AsRaw:
		o.MaxRecord = maxRecord + len("\r\n")
	default:
		// The encoded record may be longer than the line: "\u0000" represents one byte.
		o.MaxRecord = min(6*maxRecord+4<<10, slab.MaxSlabBytes)
	}
	return o
}

// lineCodec returns the codec of a format whose records are lines.
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

// KeptIn returns the directories of the records that are not delivered.
func (c *Spec) KeptIn(p batch.Pending) string {
	switch {
	case p.Slab == 0:
		return c.Text("spool")
	case p.Spill == 0:
		return c.Text("crash-safe")
	}
	return c.Text("spool") + " and " + c.Text("crash-safe")
}

// IsSafeName reports whether a name may be a result of SafeName.
func IsSafeName(name string) bool {
	i := strings.LastIndexByte(name, '-')
	sum, err := hex.DecodeString(name[i+1:])
	return i > 0 && err == nil && len(sum) == 4
}

// SafeName returns the name of a directory for a destination: readable, without secrets, and unique
// for each destination.
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

// Positions are the positions of keys in a configuration file, as LINE:COLUMN.
type Positions map[string]string

// SecretFiles returns the files with keys, passwords and certificates in the options.
func (c *Spec) SecretFiles() (files []string) {
	for _, o := range setting.Options {
		if o.OfFile && o.Name != "bearer-token-file" { // clients read this file again when it changes
			files = append(files, c.Text(o.Name))
		}
	}
	return files
}
