// Package firstcopies holds the tests of the first promise: the first copy of each
// record reaches a destination in the order of the calls. The promise holds for
// each key by itself: a tag at Forward, a stream at Loki, a destination of lines.
//
// A record may come more than once. Only its first copy counts for the order. The
// package has tests alone. They use public parts and peers on the loopback device
// that misbehave at random.
//
// A ledger notes the calls and the copies, and knows no protocol. A walk is one
// round against one destination, driven by one seed. The runner plays a walk many
// times, prints the seed of a round that fell, and keeps the list of known falls.
//
//	FOREBAY_SEED=n     plays the round of that seed, once; use -run for one walk
//	FOREBAY_TORTURE=1  plays hundreds of rounds of each walk and tells how many fell
package firstcopies
