package deliver

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/backoff"
	"github.com/forebay-log/forebay/internal/breaker"
)

// Options configures the delivery of an [Output]. The zero value is useful: each field
// states its default and unit.
type Options struct {
	// name is OutputOptions.Name.
	name string
	// Retry configures how a failed attempt is repeated. Default nil: the defaults of
	// [RetryOptions].
	Retry *RetryOptions
	// Breaker configures the circuit breaker. Default nil: the defaults of [BreakerOptions].
	Breaker *BreakerOptions
	// Handler receives waiting records while the circuit is open. It also receives records before
	// the memory in front of the destination drops any. Records that are in flight when the
	// destination hangs come after later ones, see ErrorHandler. Default nil: none.
	Handler ErrorHandler
	// PendingLimit is the number of waiting records above which they are offered to the handler.
	// Records are also offered to the handler when the memory is about to drop records. Default 0.
	PendingLimit int
	// HandlerFirst also offers records to the handler between the attempts before the circuit
	// opens. Default false: only while the circuit is open.
	HandlerFirst bool
	// askEvery is the interval at which PendingLimit is checked while the destination is down.
	askEvery time.Duration
	// HandlerTimeout is the maximum time of a call of Handler or DeadLetter. Default 10 s.
	HandlerTimeout time.Duration
	// DeadLetter receives the records that the destination refuses permanently. Default nil: they
	// are only counted.
	DeadLetter ErrorHandler
	// spill is the spool in OutputOptions.SpoolDir. Records that it contains at the start are
	// delivered first. nil: the batches wait in memory, which fills.
	spill spill
	// ParkedBytes limits the payload bytes of parked records, which are set aside so that other
	// records are sent. A record is parked if it may be the reason for a refusal, or if the
	// destination does not accept its stream at the moment. Beyond the limit, such records stay in
	// the slabs. They are refused after an hour, or earlier if the memory would otherwise drop
	// records that the destination accepts. Default 4 MiB.
	ParkedBytes int
	// OnError receives these events:
	//
	//   - "send" at the first failure of a series, and "recovered" at its end, but at most once per
	//     10 s if the destination fails and recovers repeatedly
	//   - "hold" if only a change of configuration helps
	//   - "gone" if the destination has ended permanently
	//   - "expired", "poison", "too-large" and "dead-letter" for the first records of a series
	//   - "handle" when the handler begins to accept records, and "handled" when the destination
	//     accepts records again and the handler has got none for 10 s
	//   - "handler" if the handler fails, and "handler-recovered" if it works again
	//   - "spill" when the spool begins to fill, "spilled" when it is empty again, and "spill-error"
	//     when it fails
	//   - "panic" if a call of the destination panics
	//
	// It runs on a separate goroutine with a bounded queue, so it may log to this destination.
	// Default nil: OutputOptions.OnError.
	OnError func(batch.Event)
}

// defaultParkedBytes is the default of Options.ParkedBytes.
const defaultParkedBytes = 4 << 20

// resolve returns the options, Retry and Breaker included, with their defaults. o may be nil. The
// error names each option that is out of range.
func (o *Options) resolve(t *Traits) (r Options, err error) {
	if o != nil {
		r = *o
	}
	r.HandlerTimeout = cmp.Or(r.HandlerTimeout, defaultHandlerTimeout)
	r.ParkedBytes = cmp.Or(r.ParkedBytes, defaultParkedBytes)
	retry, retryErr := r.Retry.resolve()
	if t.Inline && (r.Retry == nil || r.Retry.MaxAge == 0) {
		retry.MaxAge = -1
	}
	brk, brkErr := r.Breaker.resolve()
	if r.PendingLimit < 0 {
		err = fmt.Errorf("deliver: PendingLimit is %d, must be 0 or more", r.PendingLimit)
	}
	err = errors.Join(retryErr, brkErr, err, positive("HandlerTimeout", r.HandlerTimeout), positive("ParkedBytes", r.ParkedBytes))
	r.Retry, r.Breaker = &retry, &brk
	return r, err
}

// Defaults of [RetryOptions].
const (
	defaultFatalDelay      = time.Minute
	defaultMaxAge          = 24 * time.Hour
	defaultBudgetRatio     = 0.1
	defaultBudgetPerSecond = 1
)

// RetryOptions configures how an outlet repeats a failed attempt. The zero value is useful:
// each field states its default and unit.
type RetryOptions struct {
	// Min and Max bound the delay before an attempt: the first is uniform in
	// [0, Min], each later one in a range twice as wide, up to [0, Max].
	// Defaults 200 ms and 30 s.
	Min time.Duration `yaml:"min"`
	Max time.Duration `yaml:"max"`
	// FatalDelay is the minimum delay after [batch.Hold]. Default 1 min.
	FatalDelay time.Duration `yaml:"fatal_delay"`
	// MaxAge is the age at which a record is dropped with [batch.Expired] while the destination
	// fails. The age counts from Meta.Time. It counts from the arrival of the record if Meta.Time
	// is 0, or was older than MaxAge when the outlet was created, as for records from an archive.
	// The outlet checks once a second. Default 24 h, and no limit for a destination that answers
	// within Send (Traits.Inline); negative: no limit.
	MaxAge time.Duration `yaml:"max_age"`
	// BudgetRatio and BudgetPerSecond limit retries, so that they do not keep an overloaded
	// destination down. Each successful Send permits BudgetRatio retries, and each second
	// BudgetPerSecond more, with a burst of 10. Further retries wait. Defaults 0.1 and 1.
	BudgetRatio     float64 `yaml:"-"`
	BudgetPerSecond float64 `yaml:"-"`
}

// resolve returns the options with their defaults. o may be nil. The error names each field that is
// out of range.
func (o *RetryOptions) resolve() (r RetryOptions, err error) {
	if o != nil {
		r = *o
	}
	setRange(&r.Min, &r.Max, backoff.RetryMin, backoff.RetryMax)
	r.FatalDelay = cmp.Or(r.FatalDelay, defaultFatalDelay)
	r.MaxAge = cmp.Or(r.MaxAge, defaultMaxAge)
	if !(r.BudgetRatio > 0) {
		r.BudgetRatio = defaultBudgetRatio
	}
	if !(r.BudgetPerSecond > 0) {
		r.BudgetPerSecond = defaultBudgetPerSecond
	}
	return r, errors.Join(positive("retry: Min", r.Min), notBelow("retry: Max", r.Max, "Min", r.Min), positive("retry: FatalDelay", r.FatalDelay))
}

// positive returns an error if an option is 0 or less.
func positive[T int | time.Duration](name string, value T) error {
	if value > 0 {
		return nil
	}
	return fmt.Errorf("deliver: %s is %v, must be more than 0", name, value)
}

// notBelow returns an error if value, an upper bound with the given name, is below its lower bound.
func notBelow(name string, value time.Duration, leastName string, least time.Duration) error {
	if value >= least {
		return nil
	}
	return fmt.Errorf("deliver: %s is %s, below %s, which is %s", name, value, leastName, least)
}

// setRange sets the bounds that are zero to their defaults. If only one bound is set, the default
// of the other bound is adjusted, so that the lower bound never exceeds the upper bound.
func setRange(lower, upper *time.Duration, defaultLower, defaultUpper time.Duration) {
	*upper = cmp.Or(*upper, max(defaultUpper, *lower))
	*lower = cmp.Or(*lower, min(defaultLower, *upper))
}

// BreakerOptions configures the circuit breaker of an [Output]. The zero value is
// useful: each field states its default and unit.
type BreakerOptions struct {
	// Failures is the number of consecutive failures that open the circuit. Default 5.
	// Independently of this, 10 failures among the last 20 results open it too.
	Failures int `yaml:"failures"`
	// OpenMin and OpenMax limit the time that the circuit stays open before a probe. The first time
	// is random, between half of OpenMin and OpenMin. Each failed probe doubles the time, up to
	// OpenMax. It is never shorter than the delay that the destination asked for
	// ([batch.RetryAfter]), of which at most 10 minutes are honored. Defaults 1 s and 1 min.
	OpenMin time.Duration `yaml:"open_min"`
	OpenMax time.Duration `yaml:"open_max"`
	// FatalDelay is the minimum time that the circuit stays open after [batch.Hold], which opens it
	// at once. Default 1 min.
	FatalDelay time.Duration `yaml:"fatal_delay"`
	// ProbeRecords is the maximum number of records in a probe. Default 10.
	ProbeRecords int `yaml:"probe_records"`
	// Successes is the number of consecutive probes that must succeed before the circuit closes.
	// Default 2.
	Successes int `yaml:"successes"`
}

// resolve returns the options with their defaults. o may be nil. The error names every field that
// is out of range.
func (o *BreakerOptions) resolve() (r BreakerOptions, err error) {
	if o != nil {
		r = *o
	}
	r.Failures = cmp.Or(r.Failures, breaker.Failures)
	setRange(&r.OpenMin, &r.OpenMax, breaker.OpenMin, breaker.OpenMax)
	r.FatalDelay = cmp.Or(r.FatalDelay, breaker.FatalDelay)
	r.ProbeRecords = cmp.Or(r.ProbeRecords, breaker.ProbeRecords)
	r.Successes = cmp.Or(r.Successes, breaker.Successes)
	err = errors.Join(positive("breaker: Failures", r.Failures), positive("breaker: OpenMin", r.OpenMin), notBelow("breaker: OpenMax", r.OpenMax, "OpenMin", r.OpenMin),
		positive("breaker: FatalDelay", r.FatalDelay), positive("breaker: ProbeRecords", r.ProbeRecords), positive("breaker: Successes", r.Successes))
	return r, err
}
