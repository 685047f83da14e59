// Package examples contains only tests: it runs the code samples of docs/ADAPTERS.md that need no
// adapter, with the real libraries.
package examples
