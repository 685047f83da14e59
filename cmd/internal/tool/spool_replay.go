package tool

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
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/internal/diskqueue"
	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/internal/units"
	"github.com/forebay-log/forebay/spool"
)

// A ReplayTarget is the destination of forebay spool replay.
type ReplayTarget struct {
	Send    Sender
	codec   batch.Codec      // codec for the format that Send accepts without conversion; nil if there is none
	streams batch.Dictionary // dictionary for the streams in that format
	Close   func() error
}

// A ReplayOpener opens the destination of a replay.
type ReplayOpener func(c *dest.Spec, dests []dest.Destination) (*ReplayTarget, error)

// OpenReplay opens the destination of a replay. If the destination does not accept the format of a
// record, the record is converted, as --fallback does.
func OpenReplay(c *dest.Spec, dests []dest.Destination) (*ReplayTarget, error) {
	t, err := dest.OpenAt(dests, "--to", c)
	if err != nil {
		return nil, err
	}
	r := &replaySink{lines: t.NewEncoder == nil, dest: dest.NewFallback(setting.Redact(c.Name), t, record.Parser{})}
	out := &ReplayTarget{Send: r.send, Close: func() error { return r.dest.CloseDest(context.Background()) }}
	if dict := t.Dictionary(); dict != nil {
		// Records in the format of the destination are sent unchanged. The definitions of their
		// streams are in the spool, and the destination assigns the numbers.
		r.codec, out.codec, out.streams = t.Codec, t.Codec, dict
	}
	return out, nil
}

// A replaySink sends batches to a destination. If the destination does not accept the format of a
// record, the record is converted.
type replaySink struct {
	codec batch.Codec // codec for the format that dest accepts without conversion; nil if there is none
	lines bool        // dest accepts lines of any format
	dest  *dest.Fallback
}

func (r *replaySink) send(ctx context.Context, b *batch.Batch) batch.Outcome {
	same := r.codec != nil && b.Codec != nil && r.codec.ContentType() == b.Codec.ContentType()
	if same || r.lines && dest.IsLines(b.Codec) {
		return r.dest.Direct(ctx, b)
	}
	return r.dest.Send(ctx, b)
}

func newSpoolReplay(open ReplayOpener) *cobra.Command {
	dests := dest.All()
	given := dest.NewGiven()
	var to string
	cmd := &cobra.Command{
		Use:   "replay DIR --to DEST",
		Short: "Deliver the records in a spool",
		Long: `Deliver the records in a spool, oldest first, and delete them as they are delivered. The
command stops at the first failure. Undelivered records stay in the spool, and the last batch
may arrive twice when it is sent again. Crash-safe slabs are delivered if their program
has ended; a running program delivers its own slabs.

Destinations:
` + dest.UsageOf(dests) + `
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
			c, err := given.Output(dests, "--to", to, dest.OwnOption)
			if err == nil {
				err = given.Unused()
			}
			if err != nil {
				return err
			}
			for _, text := range dest.VisibleSecrets(c) {
				fmt.Fprintln(cmd.ErrOrStderr(), "forebay: "+text)
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
			return errors.Join(err, runtimeErrorIf(target.Close()))
		},
	}
	cmd.Flags().SortFlags = false // so that --help lists --to first
	cmd.Flags().StringVar(&to, "to", "", "destination `DEST`, see above (required)")
	given.AddFlags(cmd, dest.OwnOption)
	return cmd
}

// replayAll replays several directories one after the other.
func replayAll(ctx context.Context, cmd *cobra.Command, dirs []SpoolDir, target *ReplayTarget) error {
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
		o := target.Send(ctx, b)
		if o.Open.Empty() && o.Refused.Empty() { // it is unknown which records were refused: treat the batch as accepted, because sending it again would duplicate the accepted records
			unnamed += o.Unnamed
			o.Unnamed = 0
		}
		return o
	}
	for _, d := range dirs {
		if d.Segments { // segments contain older records than slabs
			if err := replaySegments(ctx, cmd, d.Dir, o, send); err != nil {
				return err
			}
		}
		if d.slabs {
			if err := replayCrash(ctx, cmd.ErrOrStderr(), d.Dir, o, send); err != nil {
				return err
			}
		}
		if d.input {
			if err := replayInput(ctx, cmd.ErrOrStderr(), d.Dir, o, send); err != nil {
				return err
			}
		}
	}
	if unnamed > 0 {
		return exit.Runtime(fmt.Errorf("the destination refused %s without naming them", console.Amount(uint64(unnamed), "record")))
	}
	return nil
}

// replaySegments delivers the records in the spool in dir.
func replaySegments(ctx context.Context, cmd *cobra.Command, dir string, o *spool.Options, send Sender) error {
	var mu sync.Mutex
	var damage []string
	opts := *o
	opts.OnEvent = func(e batch.Event) {
		if e.Op == "corrupt" {
			mu.Lock()
			defer mu.Unlock()
			damage = append(damage, spoolText(e.Err))
		}
	}
	s, err := diskqueue.Open(dir, &opts)
	if err != nil {
		return exit.Config(errors.New(spoolText(err)))
	}
	done, err := s.Replay(ctx, send)
	if cerr := s.Close(); err == nil && cerr != nil {
		err = cerr
	}
	mu.Lock() // OnEvent may still be running, because Close does not always wait for it
	for _, text := range damage {
		fmt.Fprintf(cmd.ErrOrStderr(), "forebay: %s: %s\n", dir, text)
	}
	mu.Unlock()
	st := s.Stats()
	left, lost := st.Records, st.Corrupt
	fmt.Fprintf(cmd.ErrOrStderr(), "forebay: %s: %s delivered, %s left", dir, console.Amount(done, "record"), units.Count(left))
	if lost > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), ", %s unreadable", units.Count(lost))
	}
	fmt.Fprintln(cmd.ErrOrStderr())
	if err != nil {
		return exit.With(exit.KeptCode, errors.New(spoolText(err)))
	}
	if st.Damages > 0 { // the damage was already reported
		return exit.Runtime(fmt.Errorf("%s: the spool is damaged: some records could not be delivered", dir))
	}
	return nil
}
