// Package server pins the Loki that the tests beside it run: its go.mod is what
// `go build github.com/grafana/loki/v3/cmd/loki` needs, since the command cannot
// be installed at a version because of its replace directives.
package server
