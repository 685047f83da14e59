// Package testkit provides destinations, connections and spills with fault injection, and a
// model that computes the expected outcome of every record.
//
// Random faults use a seed that is printed when a test fails and can be set with
// FOREBAY_SEED. Everything works in testing/synctest bubbles: all waits are on channels,
// timers and net.Pipe, and every deliberate hang has a hook that ends it.
package testkit
