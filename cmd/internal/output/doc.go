// Package output contains a destination behind its memory, as a pipeline runs it: events as messages,
// fallback, spool, dead letters, and the account at the end.
//
//	intake ─▶ Output.Delivery (slabs, retries, spool) ─▶ Target
//	              │ events
//	              ▼
//	           Env.Console
//
// An [Env] contains what the outputs and inputs of one pipeline share.
//
//	out := &output.Output{Env: env, Spec: spec, Target: target}
//	err := out.Connect()
package output
