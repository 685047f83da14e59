package main

import (
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/program"
	"github.com/forebay-log/forebay/otlp"
	"github.com/forebay-log/forebay/otlpgrpc"
)

// withGRPC returns the destinations otlpgrpc://HOST:PORT and otlpgrpcs://HOST.
func withGRPC() program.With {
	return program.With{OTLPGRPC: func(c otlp.Config) (dest.OTLP, error) { return otlpgrpc.New(c) }}
}
