// Package falls is a list of known falls: ways in which records were lost, held
// up or miscounted when the pipelines were attacked from outside. It has tests
// only, and they use public packages and testkit.
//
// Each fall is a script that shows it every time, through the constructors that
// users call, and a state. The test of a mended fall is an ordinary test. A known
// fall still happens: its script must show it, and the test fails when it no
// longer does, so that the list stays true. Whoever mends a fall changes its
// state in list_test.go and nothing else.
package falls
