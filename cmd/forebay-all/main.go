// Command forebay-all is cmd/forebay with additional destinations, inputs, compressions and
// charsets that need large modules: Kafka, NATS JetStream, OTLP over gRPC, zstd, and the charsets
// of East Asia.
//
//	myapp 2>&1 | forebay pipe --encode json --to 'kafka://b1:9092,b2/logs.{app}?key={user}'
//	forebay run -c forebay.yaml
//
// In container images it is named forebay.
package main

import (
	"os"

	_ "github.com/forebay-log/forebay/cmd/forebay-all/internal/charsets" // shift_jis, gbk and others
	"github.com/forebay-log/forebay/cmd/internal/program"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	_ "github.com/forebay-log/forebay/compress" // zstd
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int { return program.Main(args, withKafka(), withNATS(), withGRPC()) }

// login contains the options for user and password.
var login = []setting.Custom{{Name: "user"}, {Name: "password-file"}}
