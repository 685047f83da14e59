// Package process provides the environment of the program: signals, the service manager, and build
// information.
//
//	signals := make(chan os.Signal, 4)
//	process.Notify(signals)
package process
