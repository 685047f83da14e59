// Package integration runs forebay against real servers. Tests whose server
// cannot be had are skipped aloud.
package integration
