package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/internal/units"
)

var update = flag.Bool("update", false, "rewrite docs/FLEET.md and its picture")

// The tables and the picture in docs/FLEET.md are the output of this command.
func TestPageShowsResultsOfCommand(t *testing.T) {
	const file, picture = "../../docs/FLEET.md", "../../docs/img/fleet.svg"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	comma := func(n int) string { return strings.ReplaceAll(units.Count(uint64(n)), " ", ",") }
	seconds := func(d time.Duration) string { return d.Round(time.Second).String() }
	var needs, herds strings.Builder
	var drawn string
	for _, hosts := range []string{"100", "1000", "10000"} {
		args := "-hosts " + hosts
		f, err := parse(strings.Fields(args))
		if err != nil || f.simulate() != nil {
			t.Fatal(err)
		}
		n, withJitter, withoutJitter := comma(f.Hosts), f.withJitter, f.withoutJitter
		fmt.Fprintf(&needs, "| %s | %s/s | %s | %s | %d | %s | %s | %s | `%s` |\n", n, units.Size(f.wireBytes()), units.Size(f.wireBytes()*86400),
			comma(int(f.Requests())), f.Partitions, units.Size(float64(withJitter.SpoolBytes)), units.Size(float64(withJitter.SpoolTotal)), seconds(withJitter.CaughtUp.Max), args)
		fmt.Fprintf(&herds, "| %s | %s | %s | %s | %s | %s | %s |\n", n, comma(withJitter.Peak), comma(withoutJitter.Peak),
			seconds(withJitter.Connected.Max), seconds(withoutJitter.Connected.Max), comma(withJitter.TimedOut), comma(withoutJitter.TimedOut))
		drawn = f.svg()
	}
	fresh := page
	for _, table := range []struct{ head, rows string }{{"compressed traffic", needs.String()}, {"attempts in the worst second", herds.String()}} {
		re := regexp.MustCompile(`(\| hosts \| ` + table.head + ` \|[^\n]*\n\|[-|]+\|\n)((?:\|[^\n]*\n)*)`)
		if !re.Match(fresh) {
			t.Fatalf("docs/FLEET.md has no table of %s", table.head)
		}
		fresh = re.ReplaceAll(fresh, []byte("${1}"+table.rows))
	}
	if *update {
		if err := os.WriteFile(file, fresh, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(picture, []byte(drawn), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if old, err := os.ReadFile(picture); err != nil || !bytes.Equal(fresh, page) || string(old) != drawn {
		t.Errorf("docs/FLEET.md or its picture is not current; make fleet writes\n%s\n%s", &needs, &herds)
	}
}
