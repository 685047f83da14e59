package program

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An option of a destination that is wrong makes a wrong command line. An address and a file
// do not.
func TestExitCodeOfOptions(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	os.WriteFile(empty, nil, 0o600)
	for _, tt := range []struct {
		code int
		args string
	}{
		{exitUsage, "--to loki://h?label=app"},
		{exitUsage, "--to loki://h --label app"},
		{exitUsage, "--to loki://h?label=a:b&label=a:c"},
		{exitUsage, "--to loki://h?metadata="},
		{exitUsage, "--to loki://h --label-from="},
		{exitUsage, "--to loki://h --tenant a/b"},
		{exitUsage, "--to loki://h --label app --user u --password-file /none"},
		{exitUsage, "--to loki+https://h --tls-cert x"},
		{exitUsage, "--to loki://h --user u --bearer-token-file " + empty},
		{exitUsage, "--to syslog+tcp://h:1?facility=bogus"},
		{exitUsage, "--to syslog+tcp://h:1?facility=bogus&hostname=%20"},
		{exitUsage, "--to http://h/ --api foo"},
		{exitUsage, "--to http://h/?hec=a:b"},
		{exitUsage, "--to http://h/?header=x"},
		{exitUsage, "--to http://h/ --no-id"},
		{exitUsage, "--to otlp://h --resource =x"},
		{exitUsage, "--to forward://h --tag="},
		{exitUsage, "--to forward+tls://h --tls-cert x"},
		{exitUsage, "--to tls://h:1 --tls-key x"},
		{exitUsage, "--to file:/none/x --rotate-every 1ms"},
		{exitUsage, "--to stdout: --fallback loki://h?label=app"},

		{exitConfig, "--to loki://"},
		{exitConfig, "--to loki://h:x --label a:b"},
		{exitConfig, "--to syslog+tcp://h --level warn"},
		{exitConfig, "--to http://h:3100 --no-id"},
		{exitConfig, "--to file:/none/x --rotate-size 1MiB --keep 7 --keep-for 7d"},
		{exitConfig, "--to file:" + empty + "/x/y --mkdirs"},
		{exitConfig, "--to file:/dev/null --fsync"},
		{exitConfig, "--to loki://h --bearer-token-file /none --label a:b"},
		{exitConfig, "--to loki://h --user u --password-file /none"},
		{exitConfig, "--to forward://h --user u --shared-key-file /none"},
		{exitConfig, "--to loki+https://h --tls-ca /none"},
		{exitConfig, "--to otlps://h --tls-ca " + empty},
		{exitConfig, "--to tls://h:1 --tls-cert /none --tls-key /none"},
		{exitConfig, "--to https://h/ --tls-cert " + empty + " --tls-key " + empty},
	} {
		null, _ := os.Open(os.DevNull)
		cmd, _ := pipeCommand(null, null)
		cmd.SetArgs(strings.Fields(tt.args))
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetOut(io.Discard)
		err := cmd.Execute()
		null.Close()
		if err == nil || codeOf(err) != tt.code {
			t.Errorf("%s: exit code %d, want %d: %v", tt.args, codeOf(err), tt.code, err)
		} else if strings.Contains(err.Error(), "_attrs") || strings.Contains(err.Error(), "r_token") || strings.Contains(err.Error(), "t_file") {
			t.Errorf("%s: %v", tt.args, err)
		}
	}
}
