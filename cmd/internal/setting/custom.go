package setting

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"

	"github.com/forebay-log/forebay/internal/secrets"
)

// A Custom is an option of a destination or an input of another module. Its value is no secret.
type Custom struct {
	Name    string
	Usage   string   // for --help, and docs/CONFIG.md: what stands in backquotes is the value
	Choices []string // the values that there are, the default first; nil: any text
	Switch  bool     // it is on or off
	List    bool     // it may be repeated
	Secret  bool     // it names a file with a secret
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

// Args are the settings of a destination or an input of another module.
type Args struct {
	Rest     string // of a destination: what follows NAME://
	User     string
	Password string
	TLS      *tls.Config // nil: no TLS
	DryRun   io.Writer   // of a destination: where to show what would be sent; nil: it is sent

	Values Values
}

// Text returns the value of an option.
func (t *Args) Text(name string) string { return t.Values.Text(name) }

// On reports whether a switch is on.
func (t *Args) On(name string) bool { return t.Values.On(name) }

// List returns the values of an option that may be repeated.
func (t *Args) List(name string) []string { return t.Values.List(name) }

// elsewhere are the kinds of the programs in other modules, and which has them: the core
// says so of an address, or of a type of input, that it does not know.
var elsewhere = map[string]string{
	"kafka": "forebay-all", "kafka+tls": "forebay-all", "nats": "forebay-all", "nats+tls": "forebay-all",
	"otlpgrpc": "forebay-all", "otlpgrpcs": "forebay-all",
}

// IsElsewhere says which program has a kind of destination or input; "": none is known.
func IsElsewhere(kind string) string {
	if where := elsewhere[kind]; where != "" {
		return fmt.Sprintf("this program does not support it; use %s (build it with GOWORK=off go -C cmd/%s build, or use the image in deploy)", where, where)
	}
	return ""
}

// Secrets reads the password of the user.
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

// ReadPassword returns what the file of --password-file holds, "" without one.
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
