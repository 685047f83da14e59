// Package tools pins the tools that make check runs. It contains no code.
package tools
