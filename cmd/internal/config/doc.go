// Package config reads configuration files. It reports each fault with its line and column, and
// returns the specification of a pipeline.
//
//	YAML ─▶ items of keys ─▶ settings of inputs, outputs and rules ─▶ checks of pairs ─▶ Pipeline
//
//	p, data, err := config.Load("forebay.yaml", os.Stdin)
package config
