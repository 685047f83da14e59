package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/forebay-log/forebay/cmd/forebay-all/internal/fromnats"
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/input"
	"github.com/forebay-log/forebay/cmd/internal/program"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/secrets"
	"github.com/forebay-log/forebay/jetstream"
)

// natsLogin contains the options for authentication.
var natsLogin = slices.Concat(login, []setting.Custom{
	{Name: "creds-file", Usage: "`FILE` with a JWT and a seed, .creds (default: none)", Secret: true},
	{Name: "nkey-file", Usage: "`FILE` with the seed of an nkey (default: none)", Secret: true},
	{Name: "token-file", Usage: "`FILE` with a token (default: none)", Secret: true},
})

// withNATS returns the destination nats://SERVERS/SUBJECT and the input nats.
func withNATS() program.With {
	return program.With{
		Destinations: []dest.Extension{{
			Name: "nats", Form: "HOST:PORT/PATH", Memory: 4 << 20,
			What: "a stream of NATS JetStream, default port 4222; several servers as HOST,HOST:PORT; PATH is the subject, {NAME} in it is a field",
			Options: slices.Concat(natsLogin, []setting.Custom{
				{Name: "stream", Usage: "`NAME` of the stream that must store the lines (default: any)"},
				{Name: "sole", Usage: "keep the order even if servers lose messages; no other program may write to the stream", Switch: true},
			}),
			Open: func(t *setting.Args) (deliver.Destination, error) {
				hosts, subject, _ := strings.Cut(t.Rest, "/")
				if subject == "" {
					return nil, errors.New("the subject is missing: write nats://HOST:PORT/SUBJECT")
				}
				c, err := natsConfig(t, strings.Split(hosts, ","))
				if err != nil {
					return nil, err
				}
				c.Subject, c.Stream, c.Sole, c.TLS, c.DryRun = subject, t.Text("stream"), t.On("sole"), t.TLS, t.DryRun
				d, err := jetstream.New(c)
				return d, plainNATS(err)
			},
		}},
		Inputs: []input.Extension{{
			Name: "nats",
			Options: slices.Concat(servers("4222"), natsLogin, []setting.Custom{
				{Name: "stream", Usage: "stream to read (required)"},
				{Name: "consumer", Usage: "durable consumer, which records the delivered position; it is created if it does not exist (required)"},
				{Name: "subjects", Usage: "subjects of a new consumer; * and > are wildcards (default: all)", List: true},
				{Name: "from"},
				{Name: "fields", Usage: "additional fields of a record: sequence, or the name of a header (default: none)", List: true},
				dedupOption,
			}),
			Open: openFromNATS,
		}},
	}
}

// natsConfig returns a configuration for the servers hosts, with the authentication in the options
// t.
func natsConfig(t *setting.Args, hosts []string) (jetstream.Config, error) {
	c := jetstream.Config{Credentials: t.Text("creds-file"), NKey: t.Text("nkey-file")}
	ways := 0
	for _, way := range []string{t.User, c.Credentials, c.NKey, t.Text("token-file")} {
		if way != "" {
			ways++
		}
	}
	if ways > 1 {
		return c, errors.New("--user, --creds-file, --nkey-file and --token-file exclude each other: use one")
	}
	for _, f := range []struct {
		name, path string
		read       func(path string) (string, error)
	}{{"--creds-file", c.Credentials, readText}, {"--nkey-file", c.NKey, readText}, {"--token-file", t.Text("token-file"), secrets.ReadFile}} {
		if f.path == "" {
			continue
		}
		text, err := f.read(f.path)
		if err != nil {
			return c, fmt.Errorf("%s: %w", f.name, err)
		}
		secret := strings.TrimSpace(text)
		if secret == "" {
			return c, fmt.Errorf("%s %s is empty", f.name, f.path)
		}
		if f.name == "--token-file" {
			c.Token = secret
		}
	}
	var urls []string
	for _, host := range hosts {
		u := &url.URL{Scheme: "nats", Host: strings.TrimSpace(host)}
		if u.Host == "" || strings.ContainsAny(u.Host, "/@ ") {
			return c, errors.New("the servers: an entry is not HOST:PORT")
		}
		if t.User != "" {
			u.User = url.UserPassword(t.User, t.Password)
		}
		urls = append(urls, u.String())
	}
	c.Servers = strings.Join(urls, ",")
	return c, nil
}

// openFromNATS opens the input. If sink is nil, it only checks the options.
func openFromNATS(t *setting.Args, sink *input.Sink) (input.Reader, error) {
	switch {
	case len(t.List("servers")) == 0:
		return nil, errors.New("--servers is missing: name a server, such as n1:4222")
	case t.Text("stream") == "":
		return nil, errors.New("--stream is missing: name the stream to read")
	case t.Text("consumer") == "":
		return nil, errors.New("--consumer is missing: name the durable consumer, which records the delivered position")
	}
	c, err := natsConfig(t, hosts(t))
	if err != nil {
		return nil, err
	}
	if c.TLS, err = inputTLS(t); err != nil {
		return nil, err
	}
	from := fromnats.Config{
		NATS: c, Stream: t.Text("stream"), Consumer: t.Text("consumer"), Subjects: t.List("subjects"), FromEnd: t.Text("from") == "end",
		Fields: t.List("fields"), Dedup: t.On("dedup"),
	}
	if err := from.Check(); err != nil || sink == nil {
		return nil, plainNATS(err)
	}
	return fromnats.New(from, sink), nil
}

// readText returns the text of a file, which may have several lines.
func readText(path string) (string, error) {
	text, err := os.ReadFile(path)
	return string(text), err
}

// plainNATS returns the first line of an error of package jetstream, in which names of options
// replace the field names.
func plainNATS(err error) error {
	if err == nil {
		return nil
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	return errors.New(natsNames.Replace(first))
}

var natsNames = strings.NewReplacer(
	"jetstream: Servers: ", "the servers: ", "jetstream: Subject: ", "the subject: ", "jetstream: Stream: ", "--stream: ", "jetstream: ", "",
)
