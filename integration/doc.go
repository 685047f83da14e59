// Package integration runs forebay against real servers. If a server is not available, its tests
// are skipped with a message that begins with SKIPPED.
package integration
