// Package setting contains the table of options of outputs, and the values that options have.
//
//	flag ─────────────┐
//	query in --to ────┼─▶ Values.Set(name, text) ─▶ Values.Text, On, List, … (name)
//	configuration ────┘         ▲
//	                    table of options: default, bounds, destinations
//
// A value checks the text that it is set to. [ParseQuery] reads the options after the ? of a
// destination, and [Redact] hides secrets that people write into destinations.
//
//	v := setting.New()
//	err := v.Set("slab-size", "64KiB")
package setting
