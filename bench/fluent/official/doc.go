// Package official tests the migration page of fluent-logger-golang. It is separate, because that
// module cannot be linked together with IBM/fluent-forward-go.
package official
