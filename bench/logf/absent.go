//go:build !logf

package main

import (
	"errors"
	"os"

	"github.com/forebay-log/forebay/bench/rivals"
)

// results is where results are written: nowhere, as nothing is to replace those that were
// measured with the source.
const results = ""

// native is logf's logger.
var native rivals.Native

func openSlab(*os.File) (rivals.Writer, error) {
	return nil, errors.New("the source of logf is not here; give it: make bench-logf LOGF=/path/to/logf")
}
