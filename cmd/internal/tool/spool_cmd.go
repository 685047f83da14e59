package tool

import (
	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/cmd/internal/exit"
)

// NewSpoolCmd returns the command forebay spool.
func NewSpoolCmd() *cobra.Command { return NewSpool(OpenReplay) }

// NewSpool returns the command forebay spool. replay opens the destination of a replay.
func NewSpool(replay ReplayOpener) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "spool",
		Short: "Inspect, verify, replay or purge a spool",
		Long: `Inspect, verify, replay or purge a spool. A spool holds records that could not be delivered
yet. It is written by forebay pipe --spool and by programs that use forebay as a library. The
commands also handle the slabs and the input that forebay pipe --crash-safe keeps after the
program is killed.

DIR is the directory of a spool or of crash-safe slabs, or a directory that contains several of
them: if there are several destinations, --spool and --crash-safe create one for each.

ls, cat and verify only read, and can run while a program uses the spool. replay and purge need
exclusive access to the spool, and skip the crash-safe slabs of a running program.`,
		Example: `  forebay spool ls /var/spool/forebay
  forebay spool cat /var/spool/forebay | jq .msg
  forebay spool verify /var/spool/forebay || mail -s 'spool is damaged' root
  forebay spool replay /var/spool/forebay --to file:late.log
  forebay spool ls /dev/shm/forebay                        # what a killed pipe --crash-safe has left
  forebay spool replay /dev/shm/forebay --to file:late.log
  forebay spool purge /var/spool/forebay --yes`,
		RunE: exit.NeedsCommand,
	}
	cmd.AddCommand(newSpoolLs(), newSpoolCat(), newSpoolVerify(), newSpoolReplay(replay), newSpoolPurge())
	return cmd
}
