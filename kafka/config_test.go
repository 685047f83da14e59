package kafka

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/forebay-log/forebay"
)

// The error for an invalid Config names the field and contains no password.
func TestConfigErrorNamesTheFieldAndNoPassword(t *testing.T) {
	for want, c := range map[string]Config{
		"Brokers is empty":            {Topic: "t"},
		"Brokers: entry 2":            {Brokers: []string{"b", "u:hunter2@c"}, Topic: "t"},
		"Brokers: entry 3":            {Brokers: []string{"b", "::1", "b:1:2"}, Topic: "t"},
		"Brokers: entry 4":            {Brokers: []string{"b", "[::1]:9092", "c:65535", "b:x"}, Topic: "t"},
		"Topic is empty":              {Brokers: []string{"b"}},
		"neither . nor ..":            {Brokers: []string{"b"}, Topic: ".."},
		"does not allow":              {Brokers: []string{"b"}, Topic: "a/{app}"},
		"Topic: \"a{\"":               {Brokers: []string{"b"}, Topic: "a{"},
		"Key: \"}\"":                  {Brokers: []string{"b"}, Topic: "t", Key: "}"},
		"TraceField":                  {Brokers: []string{"b"}, Topic: "t", TraceField: "{"},
		"Compression is \"rar\"":      {Brokers: []string{"b"}, Topic: "t", Compression: "rar"},
		"Mechanism is \"gss\"":        {Brokers: []string{"b"}, Topic: "t", User: "u", Password: "hunter2", Mechanism: "gss"},
		"Password is empty":           {Brokers: []string{"b"}, Topic: "t", User: "u"},
		"User is empty":               {Brokers: []string{"b"}, Topic: "t", Password: "hunter2"},
		"BatchBytes is 3":             {Brokers: []string{"b"}, Topic: "t", BatchBytes: 3},
		"Window is -1":                {Brokers: []string{"b"}, Topic: "t", Window: -1},
		"Timeout is -1ns":             {Brokers: []string{"b"}, Topic: "t", Timeout: -1},
		"kafka: Config.Topic is empt": {},
	} {
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// Errors about a destination name the problem and contain no password.
func TestURLErrorsHidePasswords(t *testing.T) {
	for dest, want := range map[string]string{
		"b1/logs": "want kafka://", "http://b/logs": "want kafka://", "kafka:///logs": "the broker is missing", "kafka://u:hunter2@b": "the topic is missing",
		"kafka://u:hunter2%zz@b/t": "does not begin %XX", "kafka://b/t?%zz": "not a query", "kafka://b/t?key=a&key=b": "given twice", "kafka://b/t?window=x": "parameter window", "kafka://b/t?tls=true": "write kafka+tls://",
	} {
		if _, err := ParseURL(dest); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: want %q, got %v", dest, want, err)
		}
	}
	c, err := ParseURL("KAFKA+TLS://a%40b:p%2Fw:x@[::1]:9093,c/t?compression=none&timeout=5s&autocreate=true&trace=-&client=me&key={a}&batch=5000&request-timeout=1s&dial-timeout=2s")
	if err != nil || c.User != "a@b" || c.Password != "p/w:x" || c.TLS == nil || len(c.Brokers) != 2 || !c.AutoCreate || c.BatchBytes != 5000 {
		t.Errorf("%+v, %v", c, err)
	}
	if d, err := New(c); err != nil || d.String() != "kafka+tls://[::1]:9093,c/t" {
		t.Errorf("%v, %v", d, err)
	}
}

func TestToReportsErrorsOfItsOptions(t *testing.T) {
	_, err := forebay.New(To("kafka://b/t", forebay.Configure[Config](nil)))
	if err == nil || !strings.Contains(fmt.Sprint(err), "forebay.Configure: the function is nil") {
		t.Error(err)
	}
	if _, err = forebay.New(To("kafka://b/")); err == nil || !strings.Contains(err.Error(), "the topic is missing") {
		t.Error(err)
	}
}

func TestCleanTopicReplacesInvalidCharacters(t *testing.T) {
	for in, want := range map[string]string{"aZ09._-": "aZ09._-", "a b/c": "a_b_c", "ü€😀": "___", "": "unknown"} {
		if got := string(cleanTopic(nil, []byte(in))); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}

// With DryRun, each record is written with its topic and key, and no record is sent.
func TestDryRunShowsTopicAndKey(t *testing.T) {
	var shown strings.Builder
	o := begin(t, Config{Brokers: []string{"nowhere"}, Topic: "logs.{key}", Key: "{n}", DryRun: &shown}, nil)
	o.write(t, line("a", 1), line("b", 2))
	o.finish(t, 0)
	want := "topic logs.a, key \"1\": " + line("a", 1) + "topic logs.b, key \"2\": " + line("b", 2)
	if shown.String() != want {
		t.Errorf("%s, want %s", shown.String(), want)
	}
}

// ClientOptions does not require Config.Topic.
func TestClientOptionsNeedNoTopic(t *testing.T) {
	c := newCluster(t)
	opts, err := Config{Brokers: c.ListenAddrs()}.ClientOptions()
	if err != nil {
		t.Fatal(err)
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := (Config{}).ClientOptions(); err == nil || !strings.Contains(err.Error(), "Brokers is empty") {
		t.Error(err)
	}
}
