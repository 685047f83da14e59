// Package testkit has destinations, connections and spills that misbehave on
// purpose, and a model that says what must have become of every record.
//
// Random faults come from a seed that is printed with a failed test and can be
// given in FOREBAY_SEED. Everything works in testing/synctest bubbles: nothing
// waits but on channels, timers and net.Pipe, and every deliberate hang has a
// hook that ends it.
package testkit
