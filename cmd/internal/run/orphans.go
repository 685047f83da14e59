package run

import (
	"os"
	"path/filepath"

	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/output"
	"github.com/forebay-log/forebay/cmd/internal/readahead"
	"github.com/forebay-log/forebay/internal/crashfile"
	"github.com/forebay-log/forebay/internal/units"
)

// reportOrphans reports records in the --crash-safe directories that killed programs have left for
// other destinations. No output of this program delivers them.
func (l leftovers) reportOrphans() {
	p := l.p
	for _, dir := range output.CrashDirs(p.Outs) {
		l.reportOrphansIn(dir)
	}
}

func (l leftovers) reportOrphansIn(dir string) {
	p := l.p
	deliversSlabs, deliversInput := map[string]bool{}, map[string]bool{} // names of outputs that deliver their slabs and read-ahead files
	for _, out := range p.Outs {
		deliversInput[out.Dir] = true
		deliversSlabs[out.Dir] = out.Spec.Text("crash-safe") == dir
	}
	entries, _ := os.ReadDir(dir)
	var records uint64
	for _, e := range entries {
		if !e.IsDir() || deliversSlabs[e.Name()] {
			continue
		}
		files, _ := crashfile.List(filepath.Join(dir, e.Name()))
		for _, f := range files {
			if !f.Alive && !f.Incomplete && !f.Aside {
				if im, err := crashfile.Read(f.Path); err == nil {
					records += uint64(len(im.Records))
				}
			}
		}
	}
	input := 0
	for _, in := range readahead.List(dir) {
		for name, pending := range in.Pending {
			if !deliversInput[name] {
				input = max(input, len(pending))
			}
		}
	}
	if input > 0 {
		p.Console.Say("--crash-safe: %s of input for other destinations wait in %s: run forebay pipe with the same --to", units.Size(float64(input)), dir)
	}
	if records > 0 {
		p.Console.Say("--crash-safe: %s of other destinations wait in %s: see forebay spool ls and replay", console.Amount(records, "record"), dir)
	}
}
