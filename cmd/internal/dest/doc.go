// Package dest contains the kinds of destinations that --to can name. A [Spec] describes one output:
// its address, the values of its options, and the records that it receives. [OpenAt] opens its
// [Target].
//
//	flags, query, configuration ─▶ Spec ─▶ Destination.Open ─▶ Target ─▶ package output
//
// To add a kind, write a type that implements [Destination] and add it to [All]. Other modules add
// an [Extension].
//
//	given := dest.NewGiven()
//	spec, err := given.Output(dest.All(), "--to", "file:app.log?keep=7", dest.AnyOption)
package dest
