// Package process connects the program with its environment. It handles signals, notifies the
// service manager, and returns build information.
//
//	signals := make(chan os.Signal, 4)
//	process.Notify(signals)
package process
