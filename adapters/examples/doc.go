// Package examples proves, with the real libraries, the lines of docs/ADAPTERS.md that
// need no code of ours. It has tests only.
package examples
