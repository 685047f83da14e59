// Package process contains what the program knows of its process: signals, the service manager, and
// how it was built.
//
//	signals := make(chan os.Signal, 4)
//	process.Notify(signals)
package process
