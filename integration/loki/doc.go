// Package loki runs forebay's Loki client against a real Loki 3.7.8.
//
// The server is built once with the module in server/, in about ten minutes of processor time, and
// stored in the directory forebay of the user's cache:
//
//	go build -C server -trimpath -ldflags="-s -w" -o ~/.cache/forebay/loki-3.7.8 github.com/grafana/loki/v3/cmd/loki
//
// With FOREBAY_LOKI_BUILD=1 the tests build it (set -timeout 40m). FOREBAY_LOKI names another
// binary. Without a binary the tests are skipped with a message.
package loki
