// Package examples tests the code samples of docs/ADAPTERS.md that need no adapter, with the real
// libraries. It contains only tests.
package examples
