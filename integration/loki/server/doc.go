// Package server pins the version of Loki for the tests in the parent directory, which build Loki
// in this module with `go build github.com/grafana/loki/v3/cmd/loki`. The command go install does
// not work, because the go.mod of Loki contains replace directives.
package server
