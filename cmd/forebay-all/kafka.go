package main

import (
	"crypto/tls"
	"errors"
	"slices"
	"strings"

	"github.com/forebay-log/forebay/cmd/forebay-all/internal/fromkafka"
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/input"
	"github.com/forebay-log/forebay/cmd/internal/program"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/kafka"
)

var mechanism = setting.Custom{Name: "mechanism", Usage: "login `MECHANISM`: plain, scram-sha-256 or scram-sha-512 (default scram-sha-512)"}

// withKafka returns the destination kafka://SERVERS/TOPIC and the input kafka.
func withKafka() program.With {
	return program.With{
		Destinations: []dest.Extension{{
			Name: "kafka", Form: "HOST:PORT/TOPIC", Memory: 4 << 20,
			What: "Apache Kafka, default port 9092; several brokers as HOST,HOST:PORT; {NAME} in TOPIC is a field; see --key",
			Options: slices.Concat(login, []setting.Custom{
				mechanism,
				{Name: "key", Usage: "record `KEY`, such as {user}; records with equal keys stay in order (default: no key; the records of one run stay in order)"},
				{Name: "compression", Usage: "compression of requests", Choices: []string{"zstd", "lz4", "snappy", "gzip", "none"}},
				{Name: "autocreate", Usage: "ask the brokers to create missing topics", Switch: true},
			}),
			Open: func(t *setting.Args) (deliver.Destination, error) {
				c, err := toKafka(t)
				if err != nil {
					return nil, err
				}
				d, err := kafka.New(c)
				return d, plainKafka(err)
			},
		}},
		Inputs: []input.Extension{{
			Name: "kafka",
			Options: slices.Concat(servers("9092"), login, []setting.Custom{
				mechanism,
				{Name: "topics", Usage: "topics to read (required)", List: true},
				{Name: "group", Usage: "consumer group, whose offsets record the delivered position (required)"},
				{Name: "instance", Usage: "unique name of this group member; a named member keeps its partitions across a restart (default: none)"},
				{Name: "from"},
				{Name: "fields", Usage: "additional fields of a record: key, partition, offset, or the name of a header (default: none)", List: true},
				dedupOption,
			}),
			Open: openFromKafka,
		}},
	}
}

// toKafka returns the configuration for a destination with the options t.
func toKafka(t *setting.Args) (kafka.Config, error) {
	hosts, topic, _ := strings.Cut(t.Rest, "/")
	c := kafka.Config{
		Brokers: strings.Split(hosts, ","), Topic: topic, Key: t.Text("key"), Compression: t.Text("compression"), AutoCreate: t.On("autocreate"),
		User: t.User, Password: t.Password, Mechanism: t.Text("mechanism"), TLS: t.TLS, DryRun: t.DryRun,
	}
	if topic == "" {
		return c, errors.New("the topic is missing: write kafka://HOST:PORT/TOPIC")
	}
	return c, nil
}

// openFromKafka opens the input. If sink is nil, it only checks the options.
func openFromKafka(t *setting.Args, sink *input.Sink) (input.Reader, error) {
	tlsConfig, err := inputTLS(t)
	if err != nil {
		return nil, err
	}
	c := fromkafka.Config{
		Kafka: kafka.Config{
			Brokers: hosts(t), User: t.User, Password: t.Password, Mechanism: t.Text("mechanism"), TLS: tlsConfig,
		},
		Topics: t.List("topics"), Group: t.Text("group"), Instance: t.Text("instance"), FromEnd: t.Text("from") == "end",
		Fields: t.List("fields"), Dedup: t.On("dedup"),
	}
	switch {
	case len(c.Kafka.Brokers) == 0:
		return nil, errors.New("--servers is missing: name a broker, such as b1:9092")
	case len(c.Topics) == 0 || slices.Contains(c.Topics, ""):
		return nil, errors.New("--topics is missing: name the topics to read")
	case c.Group == "":
		return nil, errors.New("--group is missing: name the consumer group, under which offsets are stored")
	}
	if sink == nil {
		return nil, plainKafka(c.Check())
	}
	r, err := fromkafka.New(c, sink)
	return r, plainKafka(err)
}

// servers returns the options of an input for servers and TLS. port is the default port.
func servers(port string) []setting.Custom {
	return []setting.Custom{
		{Name: "servers", Usage: "initial servers: HOST:PORT, or HOST for port " + port, List: true},
		{Name: "tls", Usage: "use TLS", Switch: true},
		{Name: "tls-ca", Usage: "file with the CA certificates for servers (default: the system's)", Secret: true},
		{Name: "tls-cert"}, {Name: "tls-key"},
	}
}

// hosts returns the servers of an input. Each element of the option may contain several servers,
// separated by commas.
func hosts(t *setting.Args) []string {
	var all []string
	for _, s := range t.List("servers") {
		all = append(all, strings.Split(s, ",")...)
	}
	return all
}

var dedupOption = setting.Custom{Name: "dedup", Usage: "drop duplicate records sent by forebay, within the last 65,536 of each of its outputs", Switch: true}

// inputTLS returns the TLS configuration of an input. If the option tls is off, it returns nil.
func inputTLS(t *setting.Args) (*tls.Config, error) {
	ca, cert, key := t.Text("tls-ca"), t.Text("tls-cert"), t.Text("tls-key")
	if !t.On("tls") {
		for name, file := range map[string]string{"--tls-ca": ca, "--tls-cert": cert, "--tls-key": key} {
			if file != "" {
				return nil, errors.New(name + " needs --tls: the servers speak TLS")
			}
		}
		return nil, nil
	}
	return dest.ClientTLS(ca, cert, key)
}

// plainKafka replaces the field names in an error of package kafka with names of options.
func plainKafka(err error) error {
	if err == nil {
		return nil
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	return errors.New(kafkaNames.Replace(first))
}

var kafkaNames = strings.NewReplacer(
	"kafka: Config.Brokers: entry", "the servers: entry", "kafka: Config.Key", "--key", "kafka: Config.Mechanism", "--mechanism",
	"kafka: Config.Compression", "--compression", "kafka: Config.Topic", "the topic",
	"kafka: Config.User is empty, but Password or Mechanism is set; set User as well", "--mechanism needs --user",
	"kafka: Config.", "", "kafka: ", "",
)
