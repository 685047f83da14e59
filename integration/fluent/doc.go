// Package fluent runs the Forward client against real receivers: OpenTelemetry's
// fluentforwardreceiver, in this process, and the FluentServer of npm's
// @fluent-org/logger, if Node is installed: the test installs the package once from
// npm/package-lock.json. Programs with additional clients are built and
// started (see directory linked). The tests need less than a minute:
//
//	GOWORK=off go -C integration/fluent test ./...
//
// Tests with real daemons, as receivers and as senders, need a few minutes and are skipped
// unless the environment names the daemons: FLUENTD lists source trees of fluentd, separated as
// in PATH, and FLUENTBIT is a program. RUBY, FLUENTD_LIB (directories before the library of the
// tree) and RUBYOPT configure Ruby. zstd is tested if fluentd and the gem zstd-ruby support it;
// Debian 12 does not have the gem. docs/RECEIVERS.md has the results.
package fluent
