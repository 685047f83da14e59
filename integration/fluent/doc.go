// Package fluent runs the Forward client against real receivers. One is OpenTelemetry's
// fluentforwardreceiver, which runs in the test process. Another is FluentServer of npm's
// @fluent-org/logger, which runs if Node is installed; a test installs the package once from
// npm/package-lock.json. A further test builds programs that contain other clients too, see
// directory linked. These tests need less than a minute:
//
//	GOWORK=off go -C integration/fluent test ./...
//
// Tests with real daemons, as receivers and as senders, need a few minutes. They are skipped unless
// the environment names a daemon: FLUENTD lists source trees of fluentd, separated as in PATH, and
// FLUENTBIT is the path of Fluent Bit. RUBY, FLUENTD_LIB (directories that are searched before the
// library of the source tree) and RUBYOPT configure Ruby. zstd is tested if fluentd and the gem
// zstd-ruby support it; Debian 12 does not have the gem. docs/RECEIVERS.md contains the results.
package fluent
