// Package examples tests, with the real libraries, the code samples of docs/ADAPTERS.md that need
// no adapter. It contains only tests.
package examples
