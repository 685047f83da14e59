// Package run contains a running pipeline: it opens the outputs and inputs of a specification,
// applies changes of the configuration, and ends.
//
//	open outputs ─▶ open inputs ─▶ run ─▶ drain ─▶ shut down ─▶ report
//	                                ▲
//	                       changes: a new specification, a level
//
//	p := run.New(spec, os.Stderr)
//	err := run.Run(p, os.Stdin, os.Stderr)
package run
