package program

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"path/filepath"
	"strings"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/file"
	"github.com/forebay-log/forebay/internal/plural"
	"github.com/forebay-log/forebay/slab"
	"github.com/forebay-log/forebay/spool"
)

// fallbackTimeout is how long --fallback may take for a batch.
const fallbackTimeout = 10 * time.Second

// newOutput puts memory of o, and the delivery that its options ask for, in front of
// out's target.
func (p *pipeline) newOutput(out *output, o *slab.Options) (*deliver.Output, error) {
	c, to, t := out.c, out.to, out.t
	retry := &deliver.RetryOptions{}
	if out.engine {
		retry.MaxAge = c.maxAge()
	}
	opts := &deliver.OutputOptions{
		Name: to, Codec: o.Codec, CodecFor: t.codecFor, Slab: *o,
		Deliver: deliver.Options{
			PendingLimit: c.Count("pending-limit"), OnError: func(e batch.Event) { p.deliveryEvent(out, e) },
			Retry: retry,
		},
		DeadLetterFile: c.Text("dead-letter"),
		Spool:          c.spoolOptions(),
	}
	if !out.engine {
		opts.Deliver.OnError = o.OnError
	}
	if f := out.fallback; f != nil {
		opts.Deliver.Handler = deliver.ErrorHandlerFunc(func(_ error, b *batch.Batch) batch.Outcome {
			ctx, cancel := context.WithTimeout(context.Background(), fallbackTimeout)
			defer cancel()
			return f.Send(ctx, b)
		})
	}
	if c.Text("spool") != "" {
		if policy := c.Text("when-full"); strings.HasPrefix(policy, "drop-") && !p.saidDrops {
			p.saidDrops = true
			p.con.Say("--when-full %s drops lines while a destination is slow, even while --spool has room; use --when-full spill to store them there", policy)
		}
		opts.SpoolDir = filepath.Join(c.Text("spool"), out.dir)
		opts.Spool.OnEvent = func(e batch.Event) { p.spoolEvent(out, e) }
	}
	d, err := deliver.NewOutput(c.outlet(t), opts)
	if err != nil {
		return nil, p.placeError(out, err)
	}
	if st := d.Stats(); st.Deliver.Recovered > st.Spool.Parked { // the spool tells of those that stay
		n := st.Deliver.Recovered - st.Spool.Parked
		p.con.Say("%s: delivering %s of an earlier run first", to, plural.Records(n))
	}
	return d, nil
}

// spoolOptions are those of package spool.
func (c *outputConfig) spoolOptions() spool.Options {
	o := spool.Options{MaxBytes: c.Bytes("spool-max")}
	if c.On("fsync") {
		o.Sync = "always"
	}
	return o
}

// letters returns the file of out's refused lines, "" if they are only counted.
func (out *output) letters() string {
	if out.c.Text("dead-letter") != "" || out.c.Text("spool") == "" {
		return out.c.Text("dead-letter")
	}
	return filepath.Join(out.c.Text("spool"), out.dir, "dead-letters.jsonl")
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
	}, setting.Redact(to))
	safe = strings.TrimLeft(safe[max(0, len(safe)-readable):], ".")
	sum := sha256.Sum256([]byte(to))
	return safe + "-" + hex.EncodeToString(sum[:4])
}

// keptIn names where records are that are not delivered.
func (c *outputConfig) keptIn(p batch.Pending) string {
	switch {
	case p.Slab == 0:
		return c.Text("spool")
	case p.Spill == 0:
		return c.Text("crash-safe")
	}
	return c.Text("spool") + " and " + c.Text("crash-safe")
}

// deliveryEvent tells of what happens between an output's slabs and its
// destination.
func (p *pipeline) deliveryEvent(out *output, e batch.Event) {
	say := func(format string, args ...any) { p.con.Say("%s: "+format, append([]any{e.Output}, args...)...) }
	if errors.Is(e.Err, file.ErrGone) && (e.Op == "gone" || e.Op == "hold" || e.Op == "poison") {
		say("%s; %s", console.Plain(e.Err), out.goneText())
		return
	}
	switch e.Op {
	case "send":
		out.failing.Store(true)
		say("%s; retrying", console.Plain(e.Err))
	case "hold":
		if text := e.Err.Error(); strings.Contains(text, "rate limit") || strings.Contains(text, " 429 ") { // of a tenant, or a stream: the others go on
			say("%s; retrying when there is room", console.Plain(e.Err))
			return
		}
		out.failing.Store(true)
		say("%s; retrying at most once a minute; correct the cause", console.Plain(e.Err))
	case "recovered":
		out.failing.Store(false)
		say("works again")
	case "expired":
		say("records older than --retry-age %s are dropped", out.c.Text("retry-age"))
	case "handler":
		say("--fallback %s: %s; retrying", out.fallback.to, console.Plain(e.Err))
	case "handler-recovered":
		say("--fallback %s works again", out.fallback.to)
	case "poison":
		where := "dropping them; use --dead-letter FILE to keep them"
		if file := out.letters(); file != "" {
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
		say("--dead-letter %s: %s", out.letters(), console.Plain(e.Err))
	case "too-large":
		say("%s; sending smaller batches", console.Plain(e.Err))
	case "spill":
		switch said := out.failing.Load(); {
		case errors.Is(e.Err, deliver.ErrFull) && !said:
			say("is too slow, lines go to --spool %s", out.c.Text("spool"))
		case said:
			say("is down, lines go to --spool %s", out.c.Text("spool"))
		default: // it refused all at the first attempt
			say("is down, lines go to --spool %s: %s", out.c.Text("spool"), console.Plain(e.Err))
		}
	case "spilled":
		say("no records are left in --spool %s", out.c.Text("spool"))
	case "spill-error":
		say("--spool %s: %s; retrying", out.c.Text("spool"), console.Plain(e.Err))
	default:
		say("%s: %s", e.Op, console.Plain(e.Err))
	}
}

// spoolEvent tells of what happens to the spool of an output.
func (p *pipeline) spoolEvent(out *output, e batch.Event) {
	switch e.Op {
	case "recover": // said when it was opened
	case "drop":
		p.con.Say("%s: --spool-max %s is exceeded; dropping the oldest records (%d)", e.Output, out.c.Text("spool-max"), e.Count)
	default:
		p.con.Say("%s: --spool %s: %s", e.Output, out.c.Text("spool"), console.Plain(e.Err))
	}
}
