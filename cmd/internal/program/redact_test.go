package program

import (
	"errors"
	"strings"
	"testing"

	"github.com/forebay-log/forebay/cmd/internal/config"
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/run"
	"github.com/forebay-log/forebay/cmd/internal/setting"
)

func TestRedactHidesSecretsInAddresses(t *testing.T) {
	for to, want := range map[string]string{
		"forward://h:24224":                      "forward://h:24224",
		"forward://u:pa55@h:24224":               "forward://(secret)@h:24224",
		"loki://u:pa55/@?w@h:3100":               "loki://(secret)@h:3100",
		"loki:u:pa55@h":                          "loki:(secret)@h",
		"u:pa55@h":                               "u:(secret)@h",
		"pa55@h":                                 "(secret)@h",
		"http://h/x?token=pa55&app=a":            "http://h/x?token=(secret)&app=a",
		"loki://h?pa55":                          "loki://h?(secret)",
		"loki://h#pa55":                          "loki://h#(secret)",
		"syslog+tcp://h:1?facility=local0&app=x": "syslog+tcp://h:1?facility=local0&app=x",
		"unix:@abstract":                         "unix:@abstract",
		"syslog+unix:/x@y?app=a&key=pa55":        "syslog+unix:/x@y?app=a&key=(secret)",
		"file:/a@b":                              "file:/a@b",
		"file:/a?keep=7&pa55":                    "file:/a?keep=7&(secret)",
		"file:/a?mkdirs&cGE1NQ==":                "file:/a?mkdirs&(secret)",
		"file:/a?token=pa55&spool=/x@y":          "file:/a?token=(secret)&spool=/x@y",
		"tcp://h:1?fallback=loki://u%3Apa55%40h": "tcp://h:1?fallback=(secret)",
		"loki://h?label=app:shop&user=me":        "loki://h?label=app:shop&user=me",
		"loki://h?tls=true&verify=No&x=trues":    "loki://h?tls=true&verify=No&x=(secret)",
		"loki://h?true":                          "loki://h?(secret)",
		"stdout:":                                "stdout:",
		"":                                       "",
	} {
		if got := setting.Redact(to); got != want {
			t.Errorf("%s: %s, want %s", to, got, want)
		}
	}
	for _, text := range []string{`parse "http://u:pa55@h": bad`, "unknown command loki://u:pa55@h", "x https://h/?a=1&token=pa55 y"} {
		if got := setting.RedactText(text); strings.Contains(got, "pa55") || len(got) < 10 {
			t.Error(got)
		}
	}
	if got := setting.RedactText("syslog+tcp://h?facility=local9: what is that?"); got != "syslog+tcp://h?facility=local9: what is that?" {
		t.Error(got)
	}
	if got := setting.RedactError(errors.New(`"u:p%20w" and "p w"`), "x://u:p%20w@h"); strings.Contains(got, "p%20w") || strings.Contains(got, "p w") {
		t.Error(got)
	}
}

// A short password is hidden where an error repeats the address. The same word elsewhere in the
// error is not hidden, because hiding the word would reveal the password.
func TestShortSecretsLeaveNoGaps(t *testing.T) {
	errorFor := func(to string) string {
		t.Helper()
		tg, err := forwardTarget(t, to, "--dry-run")
		if err == nil {
			tg.Close()
			t.Fatalf("no error for %s", to)
		}
		return err.Error()
	}
	for _, scheme := range []string{"forward", "forward+tls", "loki", "loki+https", "otlp", "otlps", "tcp", "tls", "syslog+tcp", "stdout"} {
		want := strings.ReplaceAll(errorFor(scheme+"://0:0000@h:1"), "(secret)", "")
		for _, secret := range []string{"p", "e", "user", "password", "and", "nothing", "s"} {
			got := errorFor(scheme + "://" + secret + ":" + secret + "@h:1")
			if strings.ReplaceAll(got, "(secret)", "") != want || strings.Count(got, "(secret)") != 1 {
				t.Errorf("password %s: %s", secret, got)
			}
		}
	}
	for text, want := range map[string]string{
		`lookup u:p@h: no such host`:           `lookup u:(secret)@h: no such host`,
		`parse "http://u:p@h": bad port in p`:  `parse "http://(secret)@h": bad port in p`,
		`"p" and "h?t=p&a=b" and p, not ports`: `"(secret)" and "h?t=(secret)&a=b" and p, not ports`,
	} {
		if got := setting.RedactError(errors.New(text), "x://u:p@h"); got != want && got != strings.Replace(want, "u:(secret)@", "(secret)@", 1) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// An error about a destination does not contain secrets from --to.
func TestSecretsAreNotRepeated(t *testing.T) {
	for _, d := range dest.All() {
		for _, rest := range []string{"//user:s3cr3t@host:1", "//user:s3cr3t@", "user:s3cr3t@host", "//host:1?token=s3cr3t", "//host:x?key=s3cr3t", "//[?s3cr3t", "//h#s3cr3t"} {
			to := d.Scheme() + ":" + rest
			if strings.HasPrefix(to, "file:") || strings.Contains(to, "unix:") && strings.Contains(rest, "@") {
				continue // a path contains no password
			}
			tg, err := forwardTarget(t, to, "--dry-run")
			if err == nil {
				tg.Close()
				continue
			}
			if strings.Contains(err.Error(), "s3cr3t") {
				t.Errorf("%s: %v", to, err)
			}
		}
	}
	for _, to := range []string{"http://u:s3cr3t@h", "u:s3cr3t@h", "s3cr3t@h", "nats://h?token=s3cr3t"} {
		if _, err := forwardTarget(t, to); err == nil || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v", to, err)
		}
	}
	twice := &dest.Spec{To: "x://u:s3cr3t@h", Name: "x://u:s3cr3t@h"}
	if _, err := run.OpenFallback(&config.Pipeline{Dests: dest.All(), Outs: []*dest.Spec{twice}}, twice); err == nil || strings.Contains(err.Error(), "s3cr3t") {
		t.Error(err)
	}
}
