package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/file"
	"github.com/forebay-log/forebay/internal/plural"
	"github.com/forebay-log/forebay/slab"
	"github.com/forebay-log/forebay/spool"
)

// fallbackTimeout is how long --fallback may take for a batch.
const fallbackTimeout = 10 * time.Second

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
		spoolMax: size{1 << 30, 16 << 10, 0},
		retryAge: duration(24 * time.Hour),
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

// newOutput puts memory of o, and the delivery that flags ask for, in front of out's
// target.
func (p *pipeline) newOutput(out *output, o *slab.Options) (*deliver.Output, error) {
	c, to, t := p.c, out.to, out.t
	retry := &deliver.RetryOptions{}
	if out.engine {
		retry.MaxAge = c.maxAge()
	}
	opts := &deliver.OutputOptions{
		Name: to, Codec: o.Codec, CodecFor: t.codecFor, Slab: *o,
		Deliver: deliver.Options{
			PendingLimit: c.pendingLimit, OnError: p.deliveryEvent,
			Retry: retry,
		},
		DeadLetterFile: c.deadLetter,
		Spool:          spool.Options{MaxBytes: c.spoolMax.value, OnEvent: p.spoolEvent},
	}
	if !out.engine {
		opts.Deliver.OnError = o.OnError
	}
	if p.fallback != nil {
		opts.Deliver.Handler = deliver.ErrorHandlerFunc(func(_ error, b *batch.Batch) batch.Outcome {
			ctx, cancel := context.WithTimeout(context.Background(), fallbackTimeout)
			defer cancel()
			return p.fallback.Send(ctx, b)
		})
	}
	if c.spool != "" {
		if policy := c.whenFull.String(); len(p.outs) == 0 && strings.HasPrefix(policy, "drop-") {
			p.con.say("--when-full %s drops lines while a destination is slow, whatever room is in --spool; --when-full spill puts them there", policy)
		}
		opts.SpoolDir = filepath.Join(c.spool, out.dir)
	}
	d, err := deliver.NewOutput(c.outlet(t), opts)
	if err != nil {
		return nil, errors.New(strings.NewReplacer(
			"deliver: cannot open DeadLetterFile: deliver: ", "--dead-letter "+c.deadLetter+": ",
			"deliver: cannot open SpoolDir: spool: ", "--spool "+c.spool+": ",
		).Replace(err.Error()))
	}
	if st := d.Stats(); st.Deliver.Recovered > st.Spool.Parked { // the spool tells of those that stay
		n := st.Deliver.Recovered - st.Spool.Parked
		p.con.say("%s: delivering %s of an earlier run first", to, plural.Records(n))
	}
	return d, nil
}

// letters returns the file of out's refused lines, "" if they are only counted.
func (p *pipeline) letters(to string) string {
	if p.c.deadLetter != "" || p.c.spool == "" {
		return p.c.deadLetter
	}
	if dir, ok := p.dirs.Load(to); ok {
		return filepath.Join(p.c.spool, dir.(string), "dead-letters.jsonl")
	}
	return filepath.Join(p.c.spool, "*", "dead-letters.jsonl")
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
	if errors.Is(e.Err, file.ErrGone) && (e.Op == "gone" || e.Op == "hold" || e.Op == "poison") {
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
		if file := p.letters(e.Output); file != "" {
			where = "see " + file
		}
		say("refuses records for good: %s; %s", plain(e.Err), where)
	case "dead-letter":
		say("--dead-letter %s: %s", p.letters(e.Output), plain(e.Err))
	case "too-large":
		say("%s; sending less at once", plain(e.Err))
	case "spill":
		_, said := p.why.Load(e.Output)
		switch {
		case errors.Is(e.Err, deliver.ErrFull) && !said:
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
