// Package process contains what connects the program with its environment: signals, the service
// manager, and build information.
//
//	signals := make(chan os.Signal, 4)
//	process.Notify(signals)
package process
