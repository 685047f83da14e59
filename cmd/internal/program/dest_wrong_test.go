package program

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forebay-log/forebay/cmd/internal/exit"
)

// An invalid option of a destination is a usage error. An invalid address or an unreadable file is
// a configuration error.
func TestExitCodeOfOptions(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	os.WriteFile(empty, nil, 0o600)
	lines := filepath.Join(dir, "lines")
	os.WriteFile(lines, []byte("pw\nother\n"), 0o600)
	for _, tt := range []struct {
		code int
		args string
	}{
		{exit.UsageCode, "--to loki://h?label=app"},
		{exit.UsageCode, "--to loki://h --label app"},
		{exit.UsageCode, "--to loki://h?label=a:b&label=a:c"},
		{exit.UsageCode, "--to loki://h?metadata="},
		{exit.UsageCode, "--to loki://h --label-from="},
		{exit.UsageCode, "--to loki://h --tenant a/b"},
		{exit.UsageCode, "--to loki://h --label app --user u --password-file /none"},
		{exit.UsageCode, "--to loki+https://h --tls-cert x"},
		{exit.UsageCode, "--to loki://h --user u --bearer-token-file " + empty},
		{exit.UsageCode, "--to syslog+tcp://h:1?facility=bogus"},
		{exit.UsageCode, "--to syslog+tcp://h:1?facility=bogus&hostname=%20"},
		{exit.UsageCode, "--to http://h/ --api foo"},
		{exit.UsageCode, "--to http://h/?hec=a:b"},
		{exit.UsageCode, "--to http://h/?header=x"},
		{exit.UsageCode, "--to http://h/ --no-id"},
		{exit.UsageCode, "--to otlp://h --resource =x"},
		{exit.UsageCode, "--to forward://h --tag="},
		{exit.UsageCode, "--to forward+tls://h --tls-cert x"},
		{exit.UsageCode, "--to tls://h:1 --tls-key x"},
		{exit.UsageCode, "--to file:/none/x --rotate-every 1ms"},
		{exit.UsageCode, "--to file:/none/x --rotate-size 1"},
		{exit.UsageCode, "--to file:/none/x?rotate-size=100"},
		{exit.UsageCode, "--to stdout: --fallback loki://h?label=app"},

		{exit.ConfigCode, "--to loki://"},
		{exit.ConfigCode, "--to loki://h:x --label a:b"},
		{exit.ConfigCode, "--to syslog+tcp://h --level warn"},
		{exit.ConfigCode, "--to http://h:3100 --no-id"},
		{exit.ConfigCode, "--to file:/none/x --rotate-size 1MiB --keep 7 --keep-for 7d"},
		{exit.ConfigCode, "--to file:" + empty + "/x/y --mkdirs"},
		{exit.ConfigCode, "--to file:/dev/null --fsync"},
		{exit.ConfigCode, "--to loki://h --bearer-token-file /none --label a:b"},
		{exit.ConfigCode, "--to loki://h --user u --password-file /none"},
		{exit.ConfigCode, "--to loki://h --label app:x --user u --password-file " + lines},
		{exit.ConfigCode, "--to http://h --user u --password-file " + lines},
		{exit.ConfigCode, "--to forward://h --shared-key-file " + lines},
		{exit.ConfigCode, "--to forward://h --user u --shared-key-file /none"},
		{exit.ConfigCode, "--to loki+https://h --tls-ca /none"},
		{exit.ConfigCode, "--to otlps://h --tls-ca " + empty},
		{exit.ConfigCode, "--to tls://h:1 --tls-cert /none --tls-key /none"},
		{exit.ConfigCode, "--to https://h/ --tls-cert " + empty + " --tls-key " + empty},
	} {
		null, _ := os.Open(os.DevNull)
		cmd, _ := pipeCommand(null, null)
		cmd.SetArgs(strings.Fields(tt.args))
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetOut(io.Discard)
		err := cmd.Execute()
		null.Close()
		if err == nil || exit.Code(err) != tt.code {
			t.Errorf("%s: exit code %d, want %d: %v", tt.args, exit.Code(err), tt.code, err)
		} else if strings.Contains(err.Error(), "_attrs") || strings.Contains(err.Error(), "r_token") || strings.Contains(err.Error(), "t_file") {
			t.Errorf("%s: %v", tt.args, err)
		}
	}
}
