// Package server pins the version of Loki for the tests in the parent directory. Its go.mod is for
// `go build github.com/grafana/loki/v3/cmd/loki`: because of its replace directives, the command
// cannot be installed with go install.
package server
