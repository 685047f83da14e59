// Package fluent has the contenders of the rows about the Forward protocol: a
// receiver that counts, and what posts to it.
//
// fluent-logger-golang and IBM/fluent-forward-go cannot be in one program: both
// register MessagePack extension 0, and the second panics. The tag ibm builds
// with the latter instead of the former: go -C bench run -tags ibm . -rows fluent/
package fluent
