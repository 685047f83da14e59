package main

import "fmt"

// What the errors of Exception are made by: a request on its way through the layers of a
// service. An inner error is made 17 calls below the request, the outer one where the
// layer of the operation gets it. There are eight operations and four databases, so that stacks
// have their beginnings in common, as those of a service do, and not more.

//go:noinline
func operation(i int) error { return middleware(i, serve) }

//go:noinline
func middleware(i int, next func(int) error) error { return next(i) }

//go:noinline
func serve(i int) error { return authenticate(i) }

//go:noinline
func authenticate(i int) error { return limit(i) }

//go:noinline
func limit(i int) error { return trace(i) }

//go:noinline
func trace(i int) error { return route(i) }

//go:noinline
func route(i int) error { return handlers[i%len(handlers)](i) }

//go:noinline
func decode(i int, then func(int) error) error { return then(i) }

//go:noinline
func validate(i int, then func(int) error) error { return then(i) }

var handlers = [...]func(int) error{
	func(i int) error { return decode(i, charge) },
	func(i int) error { return decode(i, refund) },
	func(i int) error { return decode(i, invoice) },
	func(i int) error { return decode(i, remind) },
	func(i int) error { return validate(i, charge) },
	func(i int) error { return validate(i, refund) },
	func(i int) error { return validate(i, invoice) },
	func(i int) error { return validate(i, remind) },
}

//go:noinline
func charge(i int) error { return fail("charge", i) }

//go:noinline
func refund(i int) error { return fail("refund", i) }

//go:noinline
func invoice(i int) error { return fail("invoice", i) }

//go:noinline
func remind(i int) error { return fail("remind", i) }

//go:noinline
func fail(what string, i int) error {
	return throw(what+" failed", transaction(i))
}

//go:noinline
func transaction(i int) error { return attempt(i, 0) }

//go:noinline
func attempt(i, n int) error {
	if n < i%3 {
		return attempt(i, n+1)
	}
	return databases[i/8%len(databases)](i)
}

var databases = [...]func(int) error{
	func(i int) error { return connect(i) },
	func(i int) error { return query(i) },
	func(i int) error { return commit(i) },
	func(i int) error { return lock(i) },
}

//go:noinline
func connect(i int) error { return dial("connection refused", i) }

//go:noinline
func query(i int) error { return dial("connection reset by peer", i) }

//go:noinline
func commit(i int) error { return dial("broken pipe", i) }

//go:noinline
func lock(i int) error { return dial("i/o timeout", i) }

//go:noinline
func dial(text string, i int) error { return exchange(text, i) }

//go:noinline
func exchange(text string, i int) error {
	return throw(fmt.Sprintf("dial tcp 10.0.%d.%d:5432: %s", i>>8&255, i&255, text), nil)
}
