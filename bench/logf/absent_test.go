//go:build !logf

package main

import (
	"strings"
	"testing"
	"time"

	h "github.com/forebay-log/forebay/bench/harness"
)

// Without the source of logf no row has a verdict, and each says what is missing.
func TestAbsent(t *testing.T) {
	for _, row := range rows() {
		row.MaxOps = 1000
		res, err := h.Run(row, h.Options{Count: 1, Benchtime: time.Millisecond, Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		told := false
		for _, c := range res.Checks {
			told = told || c.Status == h.NotMeasured && strings.Contains(c.Text, "LOGF=")
		}
		if res.Status == h.OK || !told {
			t.Errorf("%s: %s, %+v", row.Name, res.Status, res.Checks)
		}
	}
}
