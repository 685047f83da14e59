package setting

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"

	"github.com/forebay-log/forebay/internal/secrets"
)

// A Custom is an option of a destination or input that another module defines. The value itself
// must not be a secret.
type Custom struct {
	Name    string
	Usage   string   // text for --help and docs/CONFIG.md, with the name of the value in backquotes
	Choices []string // allowed values, the default first; nil allows any text
	Switch  bool     // the option is a switch
	List    bool     // the option may be repeated
	Secret  bool     // the value is the name of a file with a secret
}

// Initial returns the default value.
func (o *Custom) Initial() Value {
	switch {
	case o.Switch:
		return new(Toggle)
	case o.List:
		return new(List)
	case o.Choices != nil:
		return &Choice{Value: o.Choices[0], Of: o.Choices}
	}
	return new(Text)
}

// Args contains the options of a destination or input that another module defines.
type Args struct {
	Rest     string // for a destination: the text after NAME://
	User     string
	Password string
	TLS      *tls.Config // nil without TLS
	DryRun   io.Writer   // for a destination: the output of a dry run; nil if records are sent

	Values Values
}

// Text returns the value of an option.
func (t *Args) Text(name string) string { return t.Values.Text(name) }

// On reports whether a switch is on.
func (t *Args) On(name string) bool { return t.Values.On(name) }

// List returns the values of an option that may be repeated.
func (t *Args) List(name string) []string { return t.Values.List(name) }

// elsewhere contains, for each kind of destination or input that this program does not have, the
// program that has it. Errors name this program.
var elsewhere = map[string]string{
	"kafka": "forebay-all", "kafka+tls": "forebay-all", "nats": "forebay-all", "nats+tls": "forebay-all",
	"otlpgrpc": "forebay-all", "otlpgrpcs": "forebay-all",
}

// IsElsewhere returns a text that names the program with this kind of destination or input, or ""
// if no program is known.
func IsElsewhere(kind string) string {
	if where := elsewhere[kind]; where != "" {
		return fmt.Sprintf("this program does not support it; use %s (build it with GOWORK=off go -C cmd/%s build, or use the image in deploy)", where, where)
	}
	return ""
}

// Secrets reads the password from passwordFile into t.Password. It returns an error if only one of
// user and password file is given.
func (t *Args) Secrets(passwordFile string) error {
	if (t.User == "") != (passwordFile == "") {
		return errors.New("--user and --password-file belong together: one is missing")
	}
	var err error
	if t.Password, err = ReadPassword(passwordFile); err == nil && passwordFile != "" && t.Password == "" {
		err = fmt.Errorf("--password-file %s is empty", passwordFile)
	}
	return err
}

// ReadPassword returns the content of the file that --password-file names, or "" if the flag is not
// set.
func ReadPassword(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	password, err := secrets.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("--password-file: %w", err)
	}
	return password, nil
}
