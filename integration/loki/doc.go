// Package loki runs forebay's Loki client against a real Loki 3.7.8.
//
// The server is built from its module by the module in server/, once, into
// the directory forebay of the user's cache (about ten minutes of processor time):
//
//	go build -C server -trimpath -ldflags="-s -w" -o ~/.cache/forebay/loki-3.7.8 github.com/grafana/loki/v3/cmd/loki
//
// With FOREBAY_LOKI_BUILD=1 the tests do that themselves (give -timeout 40m). Another
// binary can be named in FOREBAY_LOKI. Without one the tests are skipped, and say
// so.
package loki
