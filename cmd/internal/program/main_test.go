package program

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "rewrite the files in testdata with what the program prints")

func TestMain(m *testing.M) {
	// By default, a program with the race detector sleeps for a second before it exits. Disable the
	// sleep.
	os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	testscript.Main(privateSockets{m}, map[string]func(){
		"forebay":      func() { os.Exit(Main(os.Args[1:])) },
		"forebay-more": func() { os.Exit(Main(os.Args[1:], withMore())) },
	})
}

// privateSockets runs the tests with a new directory for the control sockets of programs.
type privateSockets struct{ m *testing.M }

func (a privateSockets) Run() int {
	dir, err := os.MkdirTemp("", "fb")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	os.Setenv("XDG_RUNTIME_DIR", dir)
	return a.m.Run()
}

// TestScripts runs the program like a user. $LOGS is the directory of the sample logs; the
// environment variable FOREBAY_LOGS replaces it.
func TestScripts(t *testing.T) {
	t.Parallel()
	logs, err := filepath.Abs(filepath.Join("..", "..", "..", "testdata", "logs"))
	if err != nil {
		t.Fatal(err)
	}
	if dir := os.Getenv("FOREBAY_LOGS"); dir != "" {
		logs = dir
	}
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		Cmds:                scriptCommands,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("LOGS", logs)
			env.Setenv("TZ", "UTC")
			env.Setenv("GORACE", os.Getenv("GORACE"))
			env.Setenv("XDG_RUNTIME_DIR", env.Getenv("WORK"))
			return nil
		},
	})
}
