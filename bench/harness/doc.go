// Package harness measures contenders and compares the results with targets.
//
// A [Row] is one line of the table: its contenders and a [Target] for each condition on the
// [Result]. [Run] measures every contender of a row once per round, in random order, for several rounds
// in one process, so that other load on the machine affects all of them alike. bench/README.md
// describes the method.
package harness
