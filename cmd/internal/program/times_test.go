package program

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forebay-log/forebay/cmd/internal/intake"
)

// In a line of auditd, the time is part of the field msg. An encoded record also has a separate
// field for the time.
func TestTimeOfAuditd(t *testing.T) {
	const line = "type=CWD msg=audit(1795169472.123:78):  cwd=/root"
	for _, tt := range []struct{ encode, line, want string }{
		{"json", line, `{"type":"CWD","msg":"audit(1795169472.123:78):","cwd":"/root","time":"2026-11-20T10:11:12.123000000Z"}`},
		{"json", line + " time=2026-11-01T01:02:03Z", `{"type":"CWD","msg":"audit(1795169472.123:78):","cwd":"/root","time":"2026-11-01T01:02:03Z"}`},
		{"json", `{"type":"CWD","msg":"audit(1795169472.123:78):"}`, `{"type":"CWD","msg":"audit(1795169472.123:78):","time":"2026-11-20T10:11:12.123000000Z"}`},
		{"logfmt", line, line + " time=2026-11-20T10:11:12.123000000Z"},
		{"raw", line, line},
	} {
		out := filepath.Join(t.TempDir(), "out")
		c := newConfig("file:" + out)
		giveOptions(t, &c.Options, "--encode", tt.encode)
		if _, err := runText(t, c, tt.line+"\n"); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(out); err != nil || string(got) != tt.want+"\n" {
			t.Errorf("%s, %s: %s, want %s (%v)", tt.encode, tt.line, got, tt.want, err)
		}
	}
}

// If a line from a container contains no time, it gets the time that the container runtime
// recorded, whatever the format of the line. With --time now, this time is not used.
func TestTimeOfTheRuntime(t *testing.T) {
	const recorded = "2026-11-20T10:11:12.5Z"
	for line, want := range map[string]string{
		`{"a":1}`:               `{"a":1,"time":"2026-11-20T10:11:12.500000000Z"}`,
		`a=1 b=2`:               `{"a":1,"b":2,"time":"2026-11-20T10:11:12.500000000Z"}`,
		`plain`:                 `{"time":"2026-11-20T10:11:12.500000000Z","msg":"plain"}`,
		`{"a":1,"ts":17e9}`:     `{"a":1,"ts":17e9,"time":"2026-11-20T10:11:12.500000000Z"}`,
		`{"time":1700000000}`:   `{"time":1700000000}`,
		`{"time":"unknown"}`:    `{"time":"unknown","input.time":"2026-11-20T10:11:12.500000000Z"}`,
		`t=2026-11-01 01:02:03`: `{"time":"2026-11-01T01:02:03.000000000Z","msg":"t=2026-11-01 01:02:03"}`,
	} {
		wrapped := map[string]string{
			"cri":    recorded + " stdout F " + line + "\n",
			"docker": `{"log":"` + strings.ReplaceAll(line, `"`, `\"`) + `\n","stream":"stdout","time":"` + recorded + `"}` + "\n",
		}
		for runtime, text := range wrapped {
			for _, times := range []intake.TimesOf{intake.TimeOfLine, intake.TimeOfBoth} {
				out := filepath.Join(t.TempDir(), "out")
				c := newConfig("file:" + out)
				giveOptions(t, &c.Options, "--encode", "json")
				c.Multiline, c.Times = []string{runtime}, times
				c.Zone.Set("UTC")
				if _, err := runText(t, c, text); err != nil {
					t.Fatal(err)
				}
				if got, err := os.ReadFile(out); err != nil || string(got) != want+"\n" {
					t.Errorf("%s, %s: %s, want %s (%v)", runtime, line, got, want, err)
				}
			}
		}
	}
}
