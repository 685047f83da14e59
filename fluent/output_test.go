package fluent

import (
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
)

// A testConfig is a Config with options of the output. Zero fields mean the defaults.
type testConfig struct {
	Config

	Name           string
	BufferBytes    int
	SlabBytes      int
	WhenFull       string
	FlushInterval  time.Duration
	MaxRecord      int
	CloseTimeout   time.Duration
	PendingLimit   int
	ErrorHandler   deliver.ErrorHandler
	FallbackFile   string
	DeadLetter     deliver.ErrorHandler
	DeadLetterFile string
	SpoolDir       string
	SpoolBytes     int64
	SpoolSync      string
	CrashDir       string
	Retry          *deliver.RetryOptions
	Breaker        *deliver.BreakerOptions
	OnError        func(batch.Event)
}

// options returns the options of the output.
func (c testConfig) options() []forebay.OutputOption {
	opts := []forebay.OutputOption{forebay.Delivery(func(o *deliver.OutputOptions) {
		o.BufferBytes, o.Slab.SlabBytes, o.Slab.FlushInterval, o.Slab.MaxRecord = c.BufferBytes, c.SlabBytes, c.FlushInterval, c.MaxRecord
		o.CloseTimeout, o.FallbackFile, o.DeadLetterFile, o.SpoolDir, o.CrashDir = c.CloseTimeout, c.FallbackFile, c.DeadLetterFile, c.SpoolDir, c.CrashDir
		o.Deliver.PendingLimit, o.Deliver.Handler, o.Deliver.DeadLetter = c.PendingLimit, c.ErrorHandler, c.DeadLetter
		o.Deliver.Retry, o.Deliver.Breaker = c.Retry, c.Breaker
		o.Spool.MaxBytes, o.Spool.Sync = c.SpoolBytes, c.SpoolSync
	})}
	if c.Name != "" {
		opts = append(opts, forebay.Name(c.Name))
	}
	if c.WhenFull != "" {
		opts = append(opts, forebay.WhenFull(c.WhenFull))
	}
	if c.OnError != nil {
		opts = append(opts, forebay.OnError(c.OnError))
	}
	return opts
}

func (c testConfig) logger() (*Logger, error) { return NewLogger(c.Config, c.options()...) }

func (c testConfig) driver() (*Driver, error) { return New(c.Config) }
