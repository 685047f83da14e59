// Package firstcopies tests the first promise: the first copies of records reach a destination in
// the order of the calls. The promise applies separately to each key: a tag in Forward, a stream in
// Loki, all records of a destination of lines.
//
// A record may arrive more than once; only its first copy counts for the order. The package
// contains only tests. They use public packages and faulty servers on loopback. A ledger records
// calls and copies, independently of the protocol. A walk is one round against one destination,
// driven by a seed. The runner runs several rounds of each walk. It stops at the first round that
// fails, and prints the seed of that round.
//
//	FOREBAY_SEED=n     runs the round of that seed once; use -run to select a walk
//	FOREBAY_TORTURE=n  runs n times as many rounds of each walk
package firstcopies
