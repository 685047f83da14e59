// Package tool contains the commands that do not run a pipeline: spool, size, top and receive.
//
//	cmd.AddCommand(tool.NewSize(), tool.NewSpoolCmd())
package tool
