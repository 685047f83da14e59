package program

import (
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/forebay-log/forebay/cmd/internal/listen/listentest"
)

// scriptCommands contains commands for scripts that wait for programs in the background.
var scriptCommands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	// await FILE REGEXP [VAR] waits until the content of the file matches. It sets the variable to
	// the first group of the match.
	"await": func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) < 2 || len(args) > 3 {
			ts.Fatalf("usage: await FILE REGEXP [VAR]")
		}
		re, err := regexp.Compile("(?m)" + args[1])
		ts.Check(err)
		var text []byte
		for late := time.Now().Add(time.Minute); time.Now().Before(late); time.Sleep(time.Millisecond) {
			text, _ = os.ReadFile(ts.MkAbs(args[0]))
			if m := re.FindSubmatch(text); m != nil {
				if len(args) == 3 {
					ts.Setenv(args[2], string(m[1]))
				}
				return
			}
		}
		ts.Fatalf("%s has no match for %q: %s", args[0], args[1], text)
	},
	// cert [PREFIX] writes cert.pem, a certificate for 127.0.0.1, and key.pem.
	"cert": func(ts *testscript.TestScript, neg bool, args []string) {
		cert, key, err := listentest.NewCert()
		ts.Check(err)
		ts.Check(os.WriteFile(ts.MkAbs(strings.Join(args, "")+"cert.pem"), cert, 0o600))
		ts.Check(os.WriteFile(ts.MkAbs(strings.Join(args, "")+"key.pem"), key, 0o600))
	},
}
