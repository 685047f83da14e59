// Package input contains the types of inputs: standard input, files, the systemd journal, listeners
// of protocols, and inputs of other modules.
//
//	settings ─▶ KindOf ─▶ Kind.Open(inlet) ─▶ Source: Run, Stop, Finish, Close
//
// To add a type, write a [Kind] and add its options to [Options]. Other modules add an [Extension].
//
//	source, err := kind.Open(inlet)
//	err = source.Run()
package input
