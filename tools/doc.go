// Package tools pins the tools that make check runs. It holds no code.
package tools
