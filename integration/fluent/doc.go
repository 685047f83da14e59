// Package fluent runs the Forward client against real receivers: OpenTelemetry's
// fluentforwardreceiver, in this process, and the FluentServer of npm's
// @fluent-org/logger, if Node is there: the test installs the package, once, from
// npm/package-lock.json. Programs with other clients in them are built and run to
// see them start (see beside). The whole takes less than a minute:
//
//	GOWORK=off go -C integration/fluent test ./...
//
// Real daemons, as receivers and as senders to forebay run and receive, come in through the
// environment, and their tests, a few minutes, are skipped
// without: FLUENTD names source trees of fluentd, in the form of PATH, FLUENTBIT a program.
// RUBY, FLUENTD_LIB (directories before the tree's library) and RUBYOPT help a Ruby that lacks
// something. zstd is tried where fluentd and the gem zstd-ruby have it; RubyGems or the
// sources of the gem, which bring libzstd, have that, Debian 12 has not. docs/RECEIVERS.md has what
// they show.
package fluent
