// Package harness measures contenders side by side and says whether ours
// reached its target.
//
// A [Row] is one line of the table: its contenders, the target in words and a
// function that judges the [Result]. [Run] measures every contender of a row
// once per round, in random order, for several rounds in one process, so that
// whatever else the machine does meets all of them alike. README.md beside this
// module describes the method.
package harness
