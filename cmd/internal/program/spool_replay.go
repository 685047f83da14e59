package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/internal/units"
	"github.com/forebay-log/forebay/spool"
)

// A replayTarget is where spool replay delivers to.
type replayTarget struct {
	send    sender
	codec   batch.Codec      // of the form it takes as it is stored; nil: see send
	streams batch.Dictionary // of the streams of that form
	close   func() error
}

// A sender sends batches and returns what became of them.
type sender func(context.Context, *batch.Batch) batch.Outcome

// A replayOpener opens what --to of spool replay names.
type replayOpener func(c *outputConfig, dests []destination) (*replayTarget, error)

// openReplay opens any destination of forebay pipe. Records that are stored in
// another form than it wants go there as --fallback sends them.
func openReplay(c *outputConfig, dests []destination) (*replayTarget, error) {
	t, err := openAt(dests, "--to", c)
	if err != nil {
		return nil, err
	}
	r := &replaySink{lines: t.newEncoder == nil, dest: newFallback(setting.Redact(c.name), t)}
	out := &replayTarget{send: r.send, close: func() error { return r.dest.closeDest(context.Background()) }}
	if dict := t.dictionary(); dict != nil {
		// Records in its own form go there as they are: their streams, which
		// the spool knows by name, get the numbers they have there.
		r.codec, out.codec, out.streams = t.codec, t.codec, dict
	}
	return out, nil
}

// A replaySink gives batches to a destination as they are, if it can take them,
// and otherwise in the form it wants.
type replaySink struct {
	codec batch.Codec // of the form it takes as it is; nil: none
	lines bool        // it takes lines of any kind
	dest  *fallback
}

func (r *replaySink) send(ctx context.Context, b *batch.Batch) batch.Outcome {
	same := r.codec != nil && b.Codec != nil && r.codec.ContentType() == b.Codec.ContentType()
	if same || r.lines && isLines(b.Codec) {
		return r.dest.send(ctx, b)
	}
	return r.dest.Send(ctx, b)
}

func newSpoolReplay(open replayOpener) *cobra.Command {
	dests := destinations()
	given := newGivenOptions()
	var to string
	cmd := &cobra.Command{
		Use:   "replay DIR --to DEST",
		Short: "Deliver the records in a spool",
		Long: `Deliver the records in a spool, oldest first, and delete them as they are delivered. The
command stops at the first failure. Undelivered records stay in the spool, and the last batch
may arrive twice when it is sent again. Crash-safe slabs are delivered if their program
has ended; a running program delivers its own slabs.

Destinations:
` + usageOf(dests) + `
The flags are options of the destination. They can also follow a ? in --to; see
forebay pipe --help.

Exit codes:
  0   everything was delivered, or the spool was empty
  1   the spool is damaged; the readable records were delivered
  75  the destination failed; the rest is still in the spool
  78  the destination or the spool cannot be opened, or is in use`,
		Example: `  forebay spool replay /var/spool/forebay --to file:late.log
  forebay spool replay /dev/shm/forebay --to tcp://logs:5170`,
		Args: oneDir,
		RunE: func(cmd *cobra.Command, args []string) error {
			if to == "" {
				return exit.Usage(errors.New("--to is missing: name a destination"))
			}
			c, err := given.output(dests, "--to", to, ownOption)
			if err == nil {
				err = given.unheeded()
			}
			if err != nil {
				return err
			}
			dirs, err := spoolDirs(args[0])
			if err != nil {
				return err
			}
			target, err := open(c, dests)
			if err != nil {
				return exit.OrConfig(err)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			err = replayAll(ctx, cmd, dirs, target)
			return errors.Join(err, runtimeErrorIf(target.close()))
		},
	}
	cmd.Flags().SortFlags = false // --to first
	cmd.Flags().StringVar(&to, "to", "", "destination `DEST`, see above (required)")
	given.addFlags(cmd, ownOption)
	return cmd
}

// replayAll replays one spool after the other.
func replayAll(ctx context.Context, cmd *cobra.Command, dirs []spoolDir, target *replayTarget) error {
	o, err := storedForms()
	if err != nil {
		return exit.Runtime(err)
	}
	if target.codec != nil {
		stored, wanted := o.Codec, target.codec.ContentType()
		o.Streams.(*storedStreams).to = target.streams
		o.Codec = func(contentType string, schema uint32) batch.Codec {
			if contentType == wanted {
				return target.codec
			}
			return stored(contentType, schema)
		}
	}

	unnamed := 0
	send := func(ctx context.Context, b *batch.Batch) batch.Outcome {
		o := target.send(ctx, b)
		if o.Open.Empty() && o.Refused.Empty() { // the rest was taken: it must not go again
			unnamed += o.Unnamed
			o.Unnamed = 0
		}
		return o
	}
	for _, d := range dirs {
		if d.segments { // what is in them is older than what is in slabs
			if err := replaySegments(ctx, cmd, d.dir, o, send); err != nil {
				return err
			}
		}
		if d.slabs {
			if err := replayCrash(ctx, cmd.ErrOrStderr(), d.dir, o, send); err != nil {
				return err
			}
		}
		if d.input {
			if err := replayInput(ctx, cmd.ErrOrStderr(), d.dir, o, send); err != nil {
				return err
			}
		}
	}
	if unnamed > 0 {
		return exit.Runtime(fmt.Errorf("the destination refused %s without naming them", console.Amount(uint64(unnamed), "record")))
	}
	return nil
}

// replaySegments replays one spool.
func replaySegments(ctx context.Context, cmd *cobra.Command, dir string, o *spool.Options, send sender) error {
	var mu sync.Mutex
	var damage []string
	own := *o
	own.OnEvent = func(e batch.Event) {
		if e.Op == "corrupt" {
			mu.Lock()
			defer mu.Unlock()
			damage = append(damage, spoolText(e.Err))
		}
	}
	s, err := spool.Open(dir, &own)
	if err != nil {
		return exit.Config(errors.New(spoolText(err)))
	}
	done, err := s.Replay(ctx, send)
	if cerr := s.Close(); err == nil && cerr != nil {
		err = cerr
	}
	mu.Lock() // Close has waited for OnEvent, within reason
	for _, text := range damage {
		fmt.Fprintf(cmd.ErrOrStderr(), "forebay: %s: %s\n", dir, text)
	}
	mu.Unlock()
	st := s.Stats()
	left, lost := st.Records, st.Corrupt
	fmt.Fprintf(cmd.ErrOrStderr(), "forebay: %s: %s delivered, %s left", dir, console.Amount(done.Records, "record"), units.Count(left))
	if lost > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), ", %s unreadable", units.Count(lost))
	}
	fmt.Fprintln(cmd.ErrOrStderr())
	if err != nil {
		return exit.With(exit.KeptCode, errors.New(spoolText(err)))
	}
	if st.Damages > 0 { // each of them was told
		return exit.Runtime(fmt.Errorf("%s: the spool is damaged: some records could not be delivered", dir))
	}
	return nil
}
