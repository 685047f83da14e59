// Package testkit provides destinations, connections and spools with fault injection, and a model
// that computes the expected outcome of every record.
//
// Random faults use a seed. The seed is printed when a test fails, and can be set with
// FOREBAY_SEED. Everything works in testing/synctest bubbles: all waits are on channels, timers and
// net.Pipe, and the test can end each deliberate hang.
package testkit
