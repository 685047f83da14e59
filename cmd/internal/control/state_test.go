package control

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// The state of another program is printed on a terminal, so it must not contain control characters.
func TestDecodeRemovesControlCharacters(t *testing.T) {
	evil := "a\x1b]0;x\a\u009b2J\u202eb\n"
	doc, err := json.Marshal(State{
		Name: evil, Verb: evil, PID: 1, Version: evil, Now: time.Unix(1, 0),
		Outputs: []Output{{To: evil, Circuit: evil, LastError: evil, Dropped: map[string]uint64{evil: 1}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := decode(doc)
	if err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(string(again), "\x1b\a\n\u009b\u202e") || strings.Contains(string(again), `\u00`) || strings.Contains(string(again), `\n`) {
		t.Errorf("%s", again)
	}
	for _, bad := range []string{"", "null", "{}", "[]", `{"pid":-1,"now":"2026-01-01T00:00:00Z"}`, `{"pid":1}`, `{"pid":"x"}`} {
		if s, err := decode([]byte(bad)); err == nil {
			t.Errorf("%q is taken as %+v", bad, s)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"pid":1,"now":"2026-01-01T00:00:00Z","outputs":[{"to":"\u001b","dropped":{"\u0000":1}}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decode(b)
		if err != nil {
			return
		}
		for _, o := range s.Outputs {
			if plain(o.To) != o.To || plain(o.LastError) != o.LastError {
				t.Errorf("%+v", o)
			}
		}
	})
}
