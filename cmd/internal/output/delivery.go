package output

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/outputhook"
	"github.com/forebay-log/forebay/internal/plural"
	"github.com/forebay-log/forebay/internal/stdio"
	"github.com/forebay-log/forebay/slab"
)

// fallbackTimeout is the time limit for passing one batch to --fallback.
const fallbackTimeout = 10 * time.Second

// newOutput returns the deliver.Output of out. o contains the options for its memory.
func (out *Output) newOutput(o *slab.Options) (*deliver.Output, error) {
	c, to, t := out.Spec, out.To, out.Target
	retry := &deliver.RetryOptions{}
	if out.Retries {
		retry.MaxAge = c.MaxAge()
	}
	opts := &deliver.OutputOptions{
		Name: to, Codec: o.Codec, CodecFor: t.CodecFor, Slab: *o, OnError: c.OnEvent,
		Deliver: deliver.Options{
			PendingLimit: c.Count("pending-limit"), OnError: func(e batch.Event) { out.deliveryEvent(e) },
			Retry: retry,
		},
		DeadLetterFile: c.Text("dead-letter"),
		Spool:          c.SpoolOptions(),
	}
	if !out.Retries {
		opts.Deliver.OnError = o.OnError
	}
	if f := out.Fallback; f != nil {
		opts.Deliver.Handler = deliver.ErrorHandlerFunc(func(_ error, b *batch.Batch) batch.Outcome {
			ctx, cancel := context.WithTimeout(context.Background(), fallbackTimeout)
			defer cancel()
			return f.Send(ctx, b)
		})
	}
	if c.Text("spool") != "" {
		if policy := c.Text("when-full"); strings.HasPrefix(policy, "drop-") && !out.Env.warnedDrops {
			out.Env.warnedDrops = true
			out.Env.Console.Say("--when-full %s drops lines while a destination is slow, even while --spool has room; use --when-full spill to store them there", policy)
		}
		opts.SpoolDir = filepath.Join(c.Text("spool"), out.Dir)
		opts.Spool.OnEvent = func(e batch.Event) { out.spoolEvent(e) }
	}
	d, err := deliver.NewOutput(c.Outlet(t), opts)
	if err != nil {
		return nil, out.placeError(err)
	}
	if st := d.Stats(); st.Deliver.Recovered > st.Spool.Parked { // parked records are reported by an event of the spool
		n := st.Deliver.Recovered - st.Spool.Parked
		out.Env.Console.Say("%s: delivering %s of an earlier run first", to, plural.Records(n))
	}
	return d, nil
}

// deadLetterFile returns the path of the dead-letter file. If refused records are only counted, it
// returns "".
func (out *Output) deadLetterFile() string {
	if out.Spec.Text("dead-letter") != "" || out.Spec.Text("spool") == "" {
		return out.Spec.Text("dead-letter")
	}
	return filepath.Join(out.Spec.Text("spool"), out.Dir, dest.DeadLetterName)
}

// deliveryEvent prints a message about an event of the outlet.
func (out *Output) deliveryEvent(e batch.Event) {
	say := func(format string, args ...any) {
		out.Env.Console.Say("%s: "+format, append([]any{e.Output}, args...)...)
	}
	if errors.Is(e.Err, stdio.ErrGone) {
		switch e.Op {
		case "gone", "hold", "poison":
			say("%s; %s", console.Plain(e.Err), out.goneText())
			return
		case "handle", "spill": // the message before names the place
			return
		}
	}
	switch e.Op {
	case "send":
		out.failing.Store(true)
		say("%s; retrying", console.PlainOf(e.Output, e.Err))
	case "hold":
		if text := e.Err.Error(); strings.Contains(text, "rate limit") || strings.Contains(text, " 429 ") { // a limit of one tenant or stream, which other records do not exceed
			say("%s; retrying when there is room", console.Plain(e.Err))
			return
		}
		out.failing.Store(true)
		say("%s; retrying at most once a minute; correct the cause", console.PlainOf(e.Output, e.Err))
	case "recovered":
		out.failing.Store(false)
		say("works again")
	case "expired":
		say("records older than --retry-age %s are dropped", out.Spec.Text("retry-age"))
	case "handler":
		say("--fallback %s: %s; retrying", out.Fallback.To, console.Plain(e.Err))
	case "handle":
		out.sayWhy(say, e.Err, "--fallback "+out.Fallback.To)
	case "handled":
		say("lines no longer go to --fallback %s", out.Fallback.To)
	case "handler-recovered":
		say("--fallback %s works again", out.Fallback.To)
	case "poison":
		where := "dropping them; use --dead-letter FILE to keep them"
		if file := out.deadLetterFile(); file != "" {
			where = "see " + file
		}
		why := console.Plain(e.Err)
		if strings.Contains(why, "without naming them") {
			where = "they are counted but are not in the dead letters"
		}
		if strings.Contains(why, "older than --max-age") {
			where += "; --too-old now sends them with the current time"
		}
		say("refuses records permanently: %s; %s", why, where)
	case "dead-letter":
		say("--dead-letter %s: %s", out.deadLetterFile(), console.Plain(e.Err))
	case "too-large":
		say("%s; sending smaller batches", console.Plain(e.Err))
	case "spill":
		out.sayWhy(say, e.Err, "--spool "+out.Spec.Text("spool"))
	case "spilled":
		say("no records are left in --spool %s", out.Spec.Text("spool"))
	case "spill-error":
		say("--spool %s: %s; retrying", out.Spec.Text("spool"), console.WriteRemedy(console.Plain(e.Err)))
	default:
		say("%s: %s", e.Op, console.Plain(e.Err))
	}
}

// sayWhy prints that lines go to place, a flag with its value, because of err.
func (out *Output) sayWhy(say func(format string, args ...any), err error, place string) {
	switch reported := out.failing.Load(); {
	case errors.Is(err, deliver.ErrFull) && !reported:
		say("is too slow; lines go to %s", place)
	case errors.Is(err, outputhook.ErrBehind) || errors.Is(err, outputhook.ErrClosing):
		say("lines go to %s: %s", place, console.Plain(err))
	case reported:
		say("is down; lines go to %s", place)
	default: // the first delivery failed, and nothing was printed about it
		say("is down; lines go to %s: %s", place, console.PlainOf(out.To, err))
	}
}

// spoolEvent prints a message about an event of the spool.
func (out *Output) spoolEvent(e batch.Event) {
	switch e.Op {
	case "recover": // a message was already printed when the spool was opened
	case "drop":
		out.Env.Console.Say("%s: --spool-max %s is exceeded; dropping the oldest records (%d)", e.Output, out.Spec.Text("spool-max"), e.Count)
	case "drop-end":
		out.Env.Console.Say("%s: no longer dropping records of --spool; %s dropped", e.Output, plural.Records(e.Count))
	default:
		out.Env.Console.Say("%s: --spool %s: %s", e.Output, out.Spec.Text("spool"), console.Plain(e.Err))
	}
}
