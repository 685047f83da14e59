package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// output runs the command with args. It returns the standard output followed by the standard error,
// and the exit code.
func output(t *testing.T, args string) (string, int) {
	t.Helper()
	var out, notes bytes.Buffer
	code := run(strings.Fields(args), &out, &notes)
	return out.String() + notes.String(), code
}

const small = `hosts       100, each with 100 records/s of 256 B
backend     10 000 records/s, 625 KiB/s of compressed traffic, 51.5 GiB a day
            1000 requests/s in normal operation
            2.76 a day, 82.94 in 30 days, at 0.05 per GB
partitions  1, 10 MiB/s each; the busiest has 100 hosts, the mean is 100
memory      384 KiB per host: 6 slabs of 64 KiB
outage      2m0s, with 53 attempts of each host
spool       4.8 MiB on the fullest host, 388.6 MiB on all

after the outage               with jitter   without
attempts per second, at most   6             100
attempts that time out         0             0
all are connected              53.79s        35.36s
half have caught up            17.06s        45.05s
all have caught up             54.63s        45.05s
records dropped                0             0

use  forebay pipe --slab-size 64KiB --slabs 6 --when-full spill --spool DIR --spool-max 16MiB
`

// The same seed gives the same forecast, and another seed a different one.
func TestSeedDeterminesForecast(t *testing.T) {
	plot := filepath.Join(t.TempDir(), "out.svg")
	const args = "-hosts 100 -outage 2m -cost 0.05 -seed "
	if got, code := output(t, args+"1 -plot "+plot); code != 0 || got != small {
		t.Errorf("exit code %d, got\n%s\nwant\n%s", code, got, small)
	}
	if got, _ := output(t, args+"2"); got == small {
		t.Error("another seed gives the same forecast")
	}
	drawn, err := os.ReadFile(plot)
	if err != nil || !strings.Contains(string(drawn), "100 hosts reconnect after an outage of 2m<") || !strings.Contains(string(drawn), "without jitter") {
		t.Errorf("the plot is %.300q, %v", drawn, err)
	}
}

func TestForecastsOfSeveralFleets(t *testing.T) {
	for args, want := range map[string]string{
		"-hosts 100 -keyed -partitions 3 -outage 1m": "3, 10 MiB/s each; each host writes to all\n",
		"-hosts 20 -spool-max 0 -outage 2m":          "spool       none\n",
		"-hosts 20 -spool-max 1MiB -outage 2m":       "too small: no record is dropped with --spool-max 16MiB\n",
		"-hosts 100 -outage 0s":                      "attempts per second, at most   0             0\n",
		"-hosts 10 -flush-interval 1s":               " --flush-interval 1s --when-full spill",
	} {
		if got, code := output(t, args); code != 0 || !strings.Contains(got, want) {
			t.Errorf("%s: exit code %d, got\n%s\nwithout %q", args, code, got, want)
		}
	}
}

func TestInvalidFlagsAreReported(t *testing.T) {
	for args, want := range map[string]string{
		"-hosts 0":                     "-hosts 0: use 1 to 1000000\n",
		"-rate 0":                      "-rate 0: use more than 0\n",
		"-outage 744h1s":               "-outage 744h0m1s: use at most",
		"-session 2h":                  "-session 2h0m0s: use at most 1h\n",
		"-fail-after 2h":               "-fail-after 2h0m0s: use at most 1h\n",
		"-flush-interval 0s":           "-flush-interval 0s: use more than 0 and at most 1h\n",
		"-partitions -1":               "-partitions -1: use 1 to 100000, or 0",
		"-partitions 3 -catch-up 10m":  "-partitions and -catch-up: use one",
		"-compression 0":               "-compression 0: use more than 0 and at most 1000\n",
		"-compression NaN":             "-compression NaN: use more than 0",
		"-cost -1":                     "-cost -1: use 0 or more\n",
		"-partition-rate 0":            "-partition-rate: use more than 0\n",
		"extra":                        "extra",
		"-catch-up 1m":                 "cannot plan: hosts take up to 1m0s to come back: 1m0s to catch up is too little\n",
		"-partitions 3":                "cannot simulate: the backend is too slow: 3371 of 10000 hosts write to the busiest of 3 partitions",
		"-latency 16s":                 "a host sends 64 records/s at most, in batches of 1024, and 100 arrive",
		"-plot no/such/dir -hosts 10":  "no such file or directory\n",
		"-outage 10s -hosts 10 -rates": "-rates",
	} {
		if got, code := output(t, args); code == 0 || !strings.Contains(got, want) {
			t.Errorf("%s: exit code %d, got\n%s\nwithout %q", args, code, got, want)
		}
	}
}
