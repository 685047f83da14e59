package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// output runs the command with args and returns its output, or the text of its error.
func output(args string) string {
	var out bytes.Buffer
	if err := run(strings.Fields(args), &out); err != nil {
		return err.Error()
	}
	return out.String()
}

const small = `hosts       100, each with 100 records/s of 256 B
backend     10 000 records/s, 625 KiB/s of compressed traffic, 51.5 GiB a day
            1000 requests/s in normal operation
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
	const args = "-hosts 100 -outage 2m -seed "
	if got := output(args + "1 -plot " + plot); got != small {
		t.Errorf("got\n%s\nwant\n%s", got, small)
	}
	if output(args+"2") == small {
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
		if got := output(args); !strings.Contains(got, want) {
			t.Errorf("%s: got\n%s\nwithout %q", args, got, want)
		}
	}
}

func TestInvalidFlagsAreReported(t *testing.T) {
	for args, want := range map[string]string{
		"-hosts 0":                     "0 hosts: want 1 to 1000000",
		"-rate 0":                      "field Rate is 0",
		"-outage 744h1s":               "an outage of 744h0m1s: want 0 to",
		"-session 2h":                  "use at most 1h",
		"-fail-after 2h":               "use at most 1h",
		"-flush-interval 0s":           "a flush interval above 0",
		"-partitions -1":               "-1 partitions: want 1 to 100000",
		"-partitions 3 -catch-up 10m":  "-partitions and -catch-up: use one",
		"-compression 0":               "-compression 0: use more than 0",
		"-compression NaN":             "a ratio of NaN: want more than 0",
		"-partition-rate 0":            "0 bytes per second and partition: want more than 0",
		"extra":                        "extra",
		"-catch-up 1m":                 "cannot plan: hosts take up to 1m0s to come back: 1m0s to catch up is too little",
		"-partitions 3":                "cannot simulate: the backend is too slow: 3371 of 10000 hosts write to the busiest of 3 partitions",
		"-latency 16s":                 "a host sends 64 records/s at most, in batches of 1024, and 100 arrive",
		"-plot no/such/dir -hosts 10":  "no such file or directory",
		"-outage 10s -hosts 10 -rates": "-rates",
	} {
		if got := output(args); !strings.Contains(got, want) {
			t.Errorf("%s: got\n%s\nwithout %q", args, got, want)
		}
	}
}
