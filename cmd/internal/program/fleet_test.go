package program

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/units"
)

// shownFleet is what the tables of docs/FLEET.md are drawn from.
type shownFleet struct {
	Hosts      uint64
	Sent       float64 `json:"sent_bytes_per_second"`
	Requests   float64 `json:"requests_per_second"`
	Partitions int
	Apart      shownFleetResult `json:"with_jitter"`
	Together   shownFleetResult `json:"without_jitter"`
}

type shownFleetResult struct {
	Peak      uint64                `json:"attempts_per_second_peak"`
	TimedOut  uint64                `json:"attempts_timed_out"`
	Connected struct{ Max float64 } `json:"connected_seconds"`
	CaughtUp  struct{ Max float64 } `json:"caught_up_seconds"`
	Spool     float64               `json:"spool_bytes_per_host"`
	SpoolAll  float64               `json:"spool_bytes"`
}

// The tables and the picture of docs/FLEET.md are what the program says.
func TestFleetPage(t *testing.T) {
	const file, picture = "../../../docs/FLEET.md", "../../../docs/img/fleet.svg"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	comma := func(n uint64) string { return strings.ReplaceAll(units.Count(n), " ", ",") }
	seconds := func(v float64) string { return time.Duration(v * 1e9).Round(time.Second).String() }
	plot := t.TempDir() + "/fleet.svg"
	var needs, herds strings.Builder
	for _, hosts := range []string{"100", "1000", "10000"} {
		args := "--hosts " + hosts
		cmd := newFleet()
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetArgs(strings.Fields(args + " -o json --plot " + plot))
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		var f shownFleet
		if err := json.Unmarshal(out.Bytes(), &f); err != nil {
			t.Fatal(err)
		}
		n := comma(f.Hosts)
		fmt.Fprintf(&needs, "| %s | %s/s | %s | %s | %d | %s | %s | %s | `forebay fleet %s` |\n", n, units.Size(f.Sent), units.Size(f.Sent*86400),
			comma(uint64(f.Requests)), f.Partitions, units.Size(f.Apart.Spool), units.Size(f.Apart.SpoolAll), seconds(f.Apart.CaughtUp.Max), args)
		fmt.Fprintf(&herds, "| %s | %s | %s | %s | %s | %s | %s |\n", n, comma(f.Apart.Peak), comma(f.Together.Peak),
			seconds(f.Apart.Connected.Max), seconds(f.Together.Connected.Max), comma(f.Apart.TimedOut), comma(f.Together.TimedOut))
	}
	drawn, err := os.ReadFile(plot)
	if err != nil {
		t.Fatal(err)
	}
	fresh := page
	for _, table := range []struct{ head, rows string }{{"as sent", needs.String()}, {"attempts in the worst second", herds.String()}} {
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
		if err := os.WriteFile(picture, drawn, 0o644); err != nil {
			t.Fatal(err)
		}
	} else if old, err := os.ReadFile(picture); err != nil || !bytes.Equal(fresh, page) || !bytes.Equal(old, drawn) {
		t.Errorf("docs/FLEET.md or its picture is not what forebay fleet says; go test ./cmd/internal/program -run TestFleetPage -update writes\n%s\n%s", &needs, &herds)
	}
}
