package main

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "rewrite the files in testdata with what the program prints")

func TestMain(m *testing.M) {
	// A program built with the race detector waits a second before it ends.
	os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	testscript.Main(m, map[string]func(){"forebay": main})
}

// The program as a user runs it. $LOGS is the directory of the sample logs;
// FOREBAY_LOGS may name another one with more.
func TestScripts(t *testing.T) {
	logs, err := filepath.Abs(filepath.Join("..", "..", "testdata", "logs"))
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
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("LOGS", logs)
			env.Setenv("TZ", "UTC")
			env.Setenv("GORACE", os.Getenv("GORACE"))
			return nil
		},
	})
}
