package join

import (
	"strings"
	"testing"
)

// Each text is divided into the records that "|" separates in the table. "¦" stands for "|" in the
// text.
func TestTracesOfManyLanguages(t *testing.T) {
	for _, tt := range []struct{ rule, text string }{
		// A log line that precedes a trace belongs to the record of the trace.
		{"java", "10:00 ERROR shop - payment failed\njava.lang.IllegalStateException: no\n\tat a.B.c(B.java:1)\nCaused by: a.XException\n\t... 2 more\n|10:01 INFO next\n"},
		{"java", "10:00 WARN  shop - slow\njava.lang.Error\n\tat a.B.c(B.java:1)\n|10:01 ERROR alone\n|10:01 ERROR also alone\n|text\n"},
		{"java", "Nov 24, 2026 10:00:00 AM a.B c\n|SEVERE: failed\njava.io.IOException: x\n\tat a.B.c(B.java:1)\n|INFO: y\n"},
		{"java", "WARNING: failed\r\njava.io.IOException: x\r\n\tat a.B.c(B.java:1)\r\n"},
		{"java", "10:00 [ERROR] shop: java.lang.Error: x\n\tat a.B.c(B.java:1)\n|java.lang.Error: y\n\tat a.B.c(B.java:1)\n"},
		{"java", "Exception in thread \"main\" MyException: x\n\tat a.B.c(B.java:1)\n"},
		{"java", "ERROR in the pool\nException in thread \"main\" java.lang.Error: x\n\tat a.B.c(B.java:1)\n|end\n"},
		{"java", "Dec 14 06:41:08 Exception in thread \"main\" java.lang.RuntimeException: x\n    at a.B.c(B.java:1)\n    at a.B.d(B.java:2)\n"},
		{"java", "TypeError: x is undefined\n    at f (a.js:1:2)\n    at async g (a.js:3:4)\n|ready\n"},
		// .NET
		{"dotnet", "Unhandled exception. System.InvalidOperationException: outer\n ---> System.ArgumentNullException: Value cannot be null. (Parameter 'x')\n   at Shop.Worker.Do(String x) in /src/Worker.cs:line 10\n" +
			"   --- End of inner exception stack trace ---\n   at Shop.Worker.Run() in /src/Worker.cs:line 20\n--- End of stack trace from previous location ---\n   at Shop.Program.Main(String[] args) in /src/Program.cs:line 5\n|next\n"},
		{"java", "2026-11-20 10:11:12.123 +01:00 [ERR] failed\n|System.ArgumentException: bad\nParameter name: x\n   at Shop.Worker.Do()\n|next\n"},
		{"auto", "10:00 ERROR failed\nSystem.AggregateException: One or more errors occurred. (a) (b)\n ---> System.Exception: a\n   at A.B()\n   --- End of inner exception stack trace ---\n   at A.C()\n" +
			" ---> (Inner Exception #1) System.Exception: b\n   at A.D()<---\n\n ---> (Inner Exception #2) System.Exception: c\n   at A.E()<---\n\n|next\n"},
		{"dotnet", "fail: Shop.Worker[0]\n|      System.Exception: x\n         at A.B()\n       ---> System.Exception: y\n         --- End of inner exception stack trace ---\n|info: Shop.Worker[0]\n"},
		// Node
		{"node", "/app/index.js:3\n    throw new Error('boom');\n    ^\n\nError: boom\n    at Object.<anonymous> (/app/index.js:3:9)\n    at node:internal/main/run_main_module:22:47 {\n  code: 'ENOENT',\n" +
			"  [cause]: Error: inner\n      at f (/app/a.js:1:2)\n}\n\nNode.js v20.11.0\n|next\n"},
		{"auto", "node:internal/modules/cjs/loader:1148\n  throw err;\n  ^\n\nError: Cannot find module 'x'\nRequire stack:\n- /app/a.js\n    at f (node:x:1:2) {\n  code: 'MODULE_NOT_FOUND'\n}\n|next\n"},
		{"node", "TypeError [ERR_INVALID_ARG_TYPE]: bad\n    at f (node:fs:1:2) {\n  code: 'ERR_INVALID_ARG_TYPE'\n}\n|(node:12) UnhandledPromiseRejectionWarning: Error: x\n    at g (/a.js:1:1)\n|next\n"},
		{"node", "Uncaught Error: a\n    at f (a.js:1:2)\n|/app/index.js:3\nno source\n|next\n|/app/index.js\n|GET /a.js:8 x\n"},
		// Ruby
		{"ruby", "before\n|app.rb:3:in `foo': boom (RuntimeError)\n\tfrom app.rb:7:in `bar'\n\tfrom app.rb:10:in `<main>'\napp.rb:1:in 'Object#x': inner (Foo::Error)\n\tfrom app.rb:2:in 'y'\n\t ... 9 levels...\n|after (it)\n"},
		{"ruby", "app.rb:1:in `<main>': undefined method `foo' for nil:NilClass (NoMethodError)\n\nnil.foo\n   ^^^^\nDid you mean?  for\n\tfrom app.rb:2:in `x'\n|after\n"},
		{"auto", "E, [2026-11-20T10:11:12.123456 #123] ERROR -- : boom (RuntimeError)\napp.rb:3:in `foo'\n/gems/a b.rb:7:in 'x'\n|I, [2026-11-20T10:11:12.123456 #123]  INFO -- : x (y)\n"},
		{"ruby", "Traceback (most recent call last):\n\t1: from app.rb:10:in `<main>'\napp.rb:3:in `foo': boom (RuntimeError)\n|after\n"},
		// Rust
		{"rust", "thread 'main' panicked at src/main.rs:4:5:\nexplicit panic\nstack backtrace:\n   0: rust_begin_unwind\n             at /rustc/1/library/std/src/panicking.rs:645:5\n   1: app::main\n             at ./src/main.rs:4:5\n" +
			"note: Some details are omitted, run with `RUST_BACKTRACE=full` for a verbose backtrace.\n|after\n"},
		{"auto", "thread 'tokio-worker 1' (123) panicked at src/main.rs:4:5:\nassertion `left == right` failed\n  left: 1\n right: 2\nnote: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n|after\n"},
		{"rust", "thread 'main' panicked at 'boom', src/main.rs:4:5\nnote: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n|thread 'a' panicked at x.rs:1:1:\nb\n|thread 'c' panicked at x.rs:1:1:\nd\n"},
		{"rust", "Error: outer\n\nCaused by:\n    0: middle\n    1: inner\n\nStack backtrace:\n   0: anyhow::error\n             at /x.rs:1:1\n|after\n"},
		// These lines only resemble the beginning of a trace.
		{"java", "10:00 ERROR a\n|10:00 caught java.lang.Error: in the middle\n|10:00 TERROR b\n|java.lang.Error: x\n"},
		{"java", "{\"level\":\"ERROR\"}\n|java.lang.Error: x\n|WARNED\n|java.lang.Error: y\n|\n|ERRORS\n"},
		{"auto", "10:00 ERROR a\njava.lang.Error: x\n\tat a.B.c(B.java:1)\n|Traceback (most recent call last):\n  File \"a\", line 1\nValueError: x\n|10:01 b\n"},

		// These are traces of programs built with Go 1.26.
		{"go", "before\n|2026/11/26 19:31:44 http: panic serving 127.0.0.1:42260: boom\ngoroutine 5 [running]:\nnet/http.(*conn).serve.func1()\n\t/go/server.go:1897 +0xbd\n" +
			"panic({0x6e33a0?, 0x777ac0?})\n\t/go/panic.go:860 +0x13a\nmain.f(...)\n\t/m.go:13\nnet/http.HandlerFunc.ServeHTTP(0x4804f9?, {0x77ce48?, 0x24046718a000?}, 0x240467177b30?)\n\t/go/server.go:2286 +0x29\n" +
			"created by net/http.(*Server).Serve in goroutine 21\n\t/go/server.go:3464 +0x485\n|after\n"},
		{"go", "before\n|panic: a [recovered, repanicked]\n\ngoroutine 1 [running]:\nmain.main.func2()\n\t/m.go:30 +0x18\npanic({0x6e33a0?, 0x777a80?})\n\t/go/panic.go:860 +0x13a\nmain.f(...)\n\t/m.go:13\n" +
			"main.main()\n\t/m.go:31 +0x56e\n|after\n"},
		{"go", "before\n|2026/11/26 19:31:44 goroutine 1 [running]:\nruntime/debug.Stack()\n\t/go/stack.go:26 +0x5e\nmain.main()\n\t/m.go:62 +0x27c\n|after\n|panic(now)\n|SIGTERM: we stop\n|the goroutine 7 [is well]: yes\n"},
		{"go", "SIGQUIT: quit\nPC=0x48bf21 m=0 sigcode=0\n\ngoroutine 0 gp=0xa0e520 m=0 mp=0xa0f4c0 [idle]:\nruntime.futex(0xa0f618, 0x80, 0x0)\n\t/go/sys.s:557 +0x21\n\nrax    0xca\nrbx    0x0\n|after\n"},
		{"python", "  + Exception Group Traceback (most recent call last):\n  ¦   File \"a.py\", line 4, in <module>\n  ¦ ExceptionGroup: eg (2 sub-exceptions)\n  ¦ a note\n  +-+---------------- 1 ----------------\n" +
			"    ¦ ValueError: 1\n    +------------------------------------\n|plain one\n|plain two\n"},
		{"python", "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n    g()\nKeyError: 'a'\n\nDuring handling of the above exception, another exception occurred:\n\n" +
			"Traceback (most recent call last):\n  File \"a.py\", line 2, in h\nValueError: b\n\nThe above exception was the direct cause of the following exception:\n\n" +
			"Traceback (most recent call last):\n  File \"a.py\", line 3, in i\nRuntimeError: c\n|next\n"},
		{"go", "panic: boom [recovered]\n\tpanic: again\n\ngoroutine 1 [running]:\nmain.f(0x1, {0x2, 0x3})\n\t/a/b.go:1 +0x1d\nmain.main()\n\t/a/b.go:2 +0x2\n\n" +
			"goroutine 7 [chan receive, 3 minutes]:\nmain.(*T).g(...)\n\t/a/b.go:3\ncreated by main.main in goroutine 1\n\t/a/b.go:4 +0x5\nexit status 2\n|next\n"},
	} {
		text := strings.NewReplacer("|", "", "¦", "|").Replace(tt.text)
		want := strings.ReplaceAll(tt.text, "¦", "|")
		if got := strings.Join(split(t, tt.rule, text), "|"); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.rule, got, want)
		}
	}
}
