package setting

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"

	"github.com/forebay-log/forebay/internal/secrets"
)

// A Custom is an option of a destination or input from another module. Its value must not be a
// secret.
type Custom struct {
	Name    string
	Usage   string   // text for --help and docs/CONFIG.md, with the name of the value in backquotes
	Choices []string // valid values, the default first; nil: any text is valid
	Switch  bool     // the value is true or false
	List    bool     // the option may be repeated
	Secret  bool     // the value is the name of a file with a secret
}

// Initial returns the default of the option in a new Value.
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

// Args contains the values of the options of a destination or input from another module.
type Args struct {
	Rest     string // for a destination: the address after NAME://
	User     string
	Password string
	TLS      *tls.Config // nil if TLS is not used
	DryRun   io.Writer   // for a destination: where a dry run prints records; nil if it is not a dry run

	Values Values
}

// Text returns the value of the named option.
func (t *Args) Text(name string) string { return t.Values.Text(name) }

// On reports whether the named switch is on.
func (t *Args) On(name string) bool { return t.Values.On(name) }

// List returns the values of the named option, which may be repeated.
func (t *Args) List(name string) []string { return t.Values.List(name) }

// elsewhere contains destinations and inputs that this program does not support, and the name of a
// program that does. It is used in errors.
var elsewhere = map[string]string{
	"kafka": "forebay-all", "kafka+tls": "forebay-all", "nats": "forebay-all", "nats+tls": "forebay-all",
	"otlpgrpc": "forebay-all", "otlpgrpcs": "forebay-all",
}

// UnsupportedHint returns a text for errors. It tells which program supports the destination or
// input named kind. If no program is known, the text is empty.
func UnsupportedHint(kind string) string {
	if where := elsewhere[kind]; where != "" {
		return fmt.Sprintf("this program does not support it; use %s (build it with GOWORK=off go -C cmd/%s build, or use the image in deploy)", where, where)
	}
	return ""
}

// Secrets reads the file with the password. It returns an error if only one of t.User and
// passwordFile is set.
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

// ReadPassword returns the password in a file, which --password-file names. If file is "", it
// returns "".
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
