// Package integration runs forebay against real servers. A test whose server is not available is
// skipped, and the message begins with SKIPPED.
package integration
