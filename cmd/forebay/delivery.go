package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/file"
	"github.com/forebay-log/forebay/slab"
	"github.com/forebay-log/forebay/spool"
)

// deliveryFlags say what becomes of lines that a destination does not take.
type deliveryFlags struct {
	fallback     string
	pendingLimit int
	spool        string
	spoolMax     size
	deadLetter   string
	retryAge     duration
	crashSafe    string
	mustBeSafe   bool

	given bool // one of those above, apart from --crash-safe
}

// newDeliveryFlags returns the defaults.
func newDeliveryFlags() deliveryFlags {
	return deliveryFlags{
		spoolMax: size{spool.DefaultMaxBytes, 4 * spool.MinSegmentBytes, 0},
		retryAge: duration(deliver.DefaultMaxAge),
	}
}

func (f *deliveryFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.fallback, "fallback", "", "`DEST` for lines that wait while a destination is down")
	fs.IntVar(&f.pendingLimit, "pending-limit", 0, "go to --fallback when more than `N` lines wait")
	fs.StringVar(&f.spool, "spool", "", "keep lines in `DIR` while a destination is down, also for the next run; with --when-full spill also while it is slow")
	fs.Var(&f.spoolMax, "spool-max", "size of the spool of each destination; over it the oldest lines are dropped")
	fs.StringVar(&f.deadLetter, "dead-letter", "", "append lines that a destination refuses for good to `FILE`, as JSON")
	fs.Var(&f.retryAge, "retry-age", "how long to try to deliver a line that failed (0: for ever)")
	fs.StringVar(&f.crashSafe, "crash-safe", "", "keep the slabs and the input read ahead in `DIR`, where they survive the death of the program")
	fs.BoolVar(&f.mustBeSafe, "crash-safe-required", false, "do not start where --crash-safe cannot be had (default: say so and go on)")
}

// check looks at what was given. The error is about the command line.
func (f *deliveryFlags) check(cmd *cobra.Command) error {
	changed := cmd.Flags().Changed
	switch {
	case f.pendingLimit < 0:
		return fmt.Errorf("--pending-limit %d: use 0 or more", f.pendingLimit)
	case changed("pending-limit") && f.fallback == "":
		return errors.New("--pending-limit is about --fallback, which is not given")
	case changed("spool-max") && f.spool == "":
		return errors.New("--spool-max is about --spool, which is not given")
	case changed("crash-safe-required") && f.crashSafe == "":
		return errors.New("--crash-safe-required is about --crash-safe, which is not given")
	}
	for _, name := range []string{"fallback", "spool", "dead-letter", "crash-safe"} {
		if changed(name) && cmd.Flag(name).Value.String() == "" {
			return fmt.Errorf("--%s is empty", name)
		}
	}
	f.given = f.fallback != "" || f.spool != "" || f.deadLetter != "" || changed("retry-age")
	return nil
}

// keeps reports whether lines may be left for the next run.
func (f *deliveryFlags) keeps() bool { return f.spool != "" || f.crashSafe != "" }

// maxAge is deliver.RetryOptions.MaxAge.
func (f *deliveryFlags) maxAge() time.Duration {
	if f.retryAge == 0 {
		return -1
	}
	return time.Duration(f.retryAge)
}

// A delivery is the deliver.Engine of an output and what it needs: the spool and
// the dead-letter file. Close, which the slab.Writer calls, closes the engine;
// release the rest.
type delivery struct {
	*deliver.Engine
	spool   *spool.Spool            // nil: none
	letters *deliver.DeadLetterFile // nil: none
	feed    atomic.Pointer[slab.Writer]
	told    atomic.Bool // the slab.Writer has the report of the engine
}

// newDelivery puts an engine in front of out's target, which remains the caller's if
// it fails.
func (p *pipeline) newDelivery(out *output) (*delivery, error) {
	c, to, t := p.c, out.to, out.t
	sink := t.asSink()
	if _, is := sink.(*deliver.Engine); is {
		return nil, fmt.Errorf("--to %s: this kind of destination does not take --fallback, --spool, --dead-letter and --retry-age yet", to)
	}
	sink = c.outlive(sink)
	d := new(delivery)
	o := &deliver.Options{
		Name: to, PendingLimit: c.pendingLimit, Pending: d.waiting, OnError: p.deliveryEvent,
		Retry: &deliver.RetryOptions{MaxAge: c.maxAge()}, SpillWhenFull: c.spills(),
	}
	fail := func(err error) (*delivery, error) {
		d.release()
		return nil, err
	}
	var err error
	if p.fallback != nil {
		if o.Handler, err = deliver.ToSink(p.fallback, nil); err != nil {
			return fail(err)
		}
	}
	if c.deadLetter != "" {
		if d.letters, err = deliver.OpenDeadLetterFile(c.deadLetter, to); err != nil {
			return fail(fmt.Errorf("--dead-letter %s: %s", c.deadLetter, plain(err)))
		}
		o.DeadLetter = d.letters
	}
	if c.spool != "" {
		if policy := c.whenFull.String(); len(p.outs) == 0 && strings.HasPrefix(policy, "drop-") {
			p.con.say("--when-full %s drops lines while a destination is slow, whatever room is in --spool; --when-full spill puts them there", policy)
		}
		dict := dictionaryOf(sink)
		d.spool, err = spool.Open(filepath.Join(c.spool, out.dir), &spool.Options{
			Name: to, MaxBytes: c.spoolMax.value, Streams: dict, Codec: t.codecFor, OnEvent: p.spoolEvent,
		})
		if err != nil {
			return fail(fmt.Errorf("--spool %s: %s", c.spool, plain(err)))
		}
		if n := d.spool.Account().Recovered; n > 0 {
			p.con.say("%s: %d records of an earlier run come first", to, n)
		}
		o.Spill = d.spool
	}
	if d.Engine, err = deliver.New(sink, o); err != nil {
		return fail(err)
	}
	return d, nil
}

// waiting returns how many records wait in front of the engine.
func (d *delivery) waiting() uint64 {
	if w := d.feed.Load(); w != nil {
		return w.Account().Pending.Slab
	}
	return 0
}

// Shutdown is [deliver.Engine.Shutdown], for the slab.Writer.
func (d *delivery) Shutdown(ctx context.Context) (batch.Report, error) {
	r, err := d.Engine.Shutdown(ctx)
	d.told.Store(true)
	return r, err
}

// writer puts slabs in front of the engine.
func (d *delivery) writer(t *target, o *slab.Options) (*slab.Writer, error) {
	var sink batch.Sink = d
	if dict := dictionaryOf(t.sink); dict != nil {
		sink = struct {
			*delivery
			batch.Dictionary
		}{d, dict}
	}
	w, err := slab.NewSink(sink, o)
	if err == nil {
		d.feed.Store(w)
	}
	return w, err
}

// release closes what the engine used. The engine must be closed.
func (d *delivery) release() error {
	var errs [2]error
	if d.spool != nil {
		errs[0] = d.spool.Close()
	}
	if d.letters != nil {
		errs[1] = d.letters.Close()
	}
	return errors.Join(errs[:]...)
}

// codecFor returns the codec of lines that an earlier run has left.
func (t *target) codecFor(contentType string, _ uint32) batch.Codec {
	if t.codec != nil && t.codec.ContentType() == contentType {
		return t.codec
	}
	c, _ := encode.CodecFor(contentType)
	return c
}

// isSafeName reports whether safeName may have made a name.
func isSafeName(name string) bool {
	i := strings.LastIndexByte(name, '-')
	sum, err := hex.DecodeString(name[i+1:])
	return i > 0 && err == nil && len(sum) == 4
}

// safeName makes a name for a directory of a destination: readable, without what
// redact hides, and another one for every destination.
func safeName(to string) string {
	const readable = 60
	safe := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-':
			return r
		}
		return '_'
	}, redact(to))
	safe = strings.TrimLeft(safe[max(0, len(safe)-readable):], ".")
	sum := sha256.Sum256([]byte(to))
	return safe + "-" + hex.EncodeToString(sum[:4])
}

// spoolGrace is how much more time a closing output with an engine gets to put
// what it holds into the spool: when the end comes at once, and when the disk is
// slow just then.
const spoolGrace = 500 * time.Millisecond

// until returns the context of the end of an output with an engine. When end is
// forced the engine stops trying, and the rest of the time is for its spool.
func (d *delivery) until(end context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(end))
	stopTimer := func() {}
	if deadline, ok := end.Deadline(); ok {
		if deadline = later(deadline, time.Now().Add(spoolGrace)); d.spool != nil {
			deadline = deadline.Add(spoolGrace)
		}
		ctx, stopTimer = context.WithDeadlineCause(ctx, deadline, errDeadline)
	}
	stop := context.AfterFunc(end, func() {
		d.Drain(time.Now())
		time.AfterFunc(spoolGrace, cancel)
	})
	return ctx, func() { stop(); stopTimer(); cancel() }
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// keptIn names where records are that are not delivered.
func (f *deliveryFlags) keptIn(p batch.Pending) string {
	switch {
	case p.Slab == 0:
		return f.spool
	case p.Spill == 0:
		return f.crashSafe
	}
	return f.spool + " and " + f.crashSafe
}

// deliveryEvent tells of what happens between an output's slabs and its
// destination.
func (p *pipeline) deliveryEvent(e batch.Event) {
	say := func(format string, args ...any) { p.con.say("%s: "+format, append([]any{e.Output}, args...)...) }
	if errors.Is(e.Err, file.ErrGone) && (e.Op == "send" || e.Op == "hold" || e.Op == "poison") {
		say("%s; %s", plain(e.Err), p.c.goneText())
		return
	}
	switch e.Op {
	case "send":
		p.why.Store(e.Output, true)
		say("%s; trying again", plain(e.Err))
	case "hold":
		p.why.Store(e.Output, true)
		say("%s; trying again, but rarely: this is not likely to go away by itself", plain(e.Err))
	case "recovered":
		p.why.Delete(e.Output)
		say("works again")
	case "expired":
		say("records older than --retry-age %s are dropped", p.c.retryAge.String())
	case "handler":
		say("--fallback %s: %s; trying again", p.fallback.to, plain(e.Err))
	case "handler-recovered":
		say("--fallback %s works again", p.fallback.to)
	case "poison":
		where := "dropping them; --dead-letter FILE would keep them"
		if p.c.deadLetter != "" {
			where = "see " + p.c.deadLetter
		}
		say("refuses records for good: %s; %s", plain(e.Err), where)
	case "dead-letter":
		say("--dead-letter %s: %s", p.c.deadLetter, plain(e.Err))
	case "too-large":
		say("%s; sending less at once", plain(e.Err))
	case "spill":
		_, said := p.why.Load(e.Output)
		switch {
		case errors.Is(e.Err, deliver.ErrFull):
			say("is too slow, lines go to --spool %s", p.c.spool)
		case said:
			say("is down, lines go to --spool %s", p.c.spool)
		default: // it refused all at the first attempt
			say("is down, lines go to --spool %s: %s", p.c.spool, plain(e.Err))
		}
	case "spilled":
		say("nothing is left in --spool %s", p.c.spool)
	case "spill-error":
		say("--spool %s: %s; trying again", p.c.spool, plain(e.Err))
	default:
		say("%s: %s", e.Op, plain(e.Err))
	}
}

// spoolEvent tells of what happens to the spool of an output.
func (p *pipeline) spoolEvent(e batch.Event) {
	switch e.Op {
	case "recover": // said when it was opened
	case "drop":
		p.con.say("%s: --spool-max %s is reached, dropping the oldest records (%d)", e.Output, p.c.spoolMax.String(), e.Count)
	default:
		p.con.say("%s: --spool %s: %s", e.Output, p.c.spool, plain(e.Err))
	}
}
