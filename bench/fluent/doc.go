// Package fluent has the contenders of the rows about the Forward protocol: a
// receiver that counts, what posts to it, and how that is measured.
//
// fluent-logger-golang (package official) and IBM/fluent-forward-go (command ibm)
// cannot be in one program: both register MessagePack extension 0, and the second
// panics. So the latter is measured by a program of its own, which has the same
// receiver and the same clock: see [Elsewhere]. Of the other Go clients
// (daichirata, k0kubun, lestrrat) the module proxy serves none: bench/README.md has
// figures of others.
package fluent
