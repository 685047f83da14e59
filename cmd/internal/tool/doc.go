// Package tool contains the commands beside the pipeline: spool, size, top and receive.
//
//	cmd.AddCommand(tool.NewSize(), tool.NewSpoolCmd())
package tool
