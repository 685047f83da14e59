package conf

import (
	"strings"
	"testing"
)

func TestNearestFindsTypos(t *testing.T) {
	names := []string{"level", "rotate-size", "rotate-every", "label", "tenant", "keep-for", "keep", "spool"}
	for text, want := range map[string]string{
		"lvel": "level", "levle": "level", "Level": "level", "rotatesize": "rotate-size", "rotate_every": "rotate-every",
		"labels": "label", "tenent": "tenant", "keep-days": "keep-for",
	} {
		if got := Nearest(text, names); got != want {
			t.Errorf("the nearest to %q is %s, want %s", text, got, want)
		}
	}
	if got := Nearest(strings.Repeat("x", 1000), names); got == "" {
		t.Error("nothing is the nearest to a long text")
	}
	if d := distance("kitten", "sitting"); d != 3 {
		t.Error(d)
	}
	if d := distance("ab", "ba"); d != 1 {
		t.Error(d)
	}
	if Alike("listen", "to") || !Alike("lisen", "listen") {
		t.Error("alike")
	}
}
