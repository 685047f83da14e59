package main

import (
	"testing"

	"github.com/forebay-log/forebay/bench/harness"
)

// The experiments are there for those who name them, and make nobody else wait.
func TestExperimentsAreApart(t *testing.T) {
	all, err := harness.Select("")
	if err != nil || len(all) == 0 {
		t.Fatal(len(all), err)
	}
	for _, r := range all {
		if r.Apart {
			t.Errorf("%s is measured without being named", r.Name)
		}
	}
	named, err := harness.Select("experiments")
	if err != nil || len(named) < 5 {
		t.Errorf("%d rows of experiments, %v", len(named), err)
	}
	for _, r := range named {
		if !r.Apart {
			t.Errorf("%s is not apart", r.Name)
		}
	}
	if _, err := harness.Select("("); err == nil {
		t.Error("( is a pattern")
	}
	if _, err := harness.Select("no such row"); err == nil {
		t.Error("no such row was found")
	}
}
