// Package input contains the types of inputs: standard input, files, the journal, listeners of
// protocols, and inputs of other modules.
//
//	settings ─▶ KindOf ─▶ Kind.Open(inlet) ─▶ Source: Run, Stop, Finish, Close
//
// To add a type, write a [Kind] and its options into [Options]. Other modules add an [Extension].
//
//	source, err := kind.Open(inlet)
//	err = source.Run()
package input
