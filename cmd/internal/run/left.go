package run

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/output"
	"github.com/forebay-log/forebay/cmd/internal/readahead"
	"github.com/forebay-log/forebay/cmd/internal/state"
	"github.com/forebay-log/forebay/internal/crashfile"
	"github.com/forebay-log/forebay/internal/diskqueue"
	"github.com/forebay-log/forebay/internal/plural"
	"github.com/forebay-log/forebay/internal/units"
)

// keptName is the name of a file in the state directory of an input. The file lists the --spool and
// --crash-safe directories of the outputs, including removed outputs.
const keptName = "kept.json"

// leftovers reports records on disk that are from earlier runs.
type leftovers struct{ p *Pipeline }

// reportRemoved reports records on disk that belong to removed outputs, so that no output delivers
// them. It searches the directories of the current outputs, and the directories listed in the
// kept.json files. It deletes nothing.
func (l leftovers) reportRemoved() {
	p := l.p
	if !p.C.Named {
		return
	}
	for _, dir := range l.rememberDirs() {
		l.reportRemovedIn(dir)
		if !l.hasCrashDir(dir) { // if it is a directory of a current output, p.Open has already reported the records
			l.reportOrphansIn(dir)
		}
	}
}

// keptDirs returns the --spool and --crash-safe directories of the outputs.
func (l leftovers) keptDirs() (dirs []string) {
	p := l.p
	for _, out := range p.Outs {
		for _, dir := range []string{out.Spec.Text("spool"), out.Spec.Text("crash-safe")} {
			if abs, err := filepath.Abs(dir); dir != "" && err == nil && !slices.Contains(dirs, abs) {
				dirs = append(dirs, abs)
			}
		}
	}
	return dirs
}

// hasCrashDir reports whether dir is the --crash-safe directory of an output.
func (l leftovers) hasCrashDir(dir string) bool {
	p := l.p
	return slices.ContainsFunc(output.CrashDirs(p.Outs), func(d string) bool {
		abs, err := filepath.Abs(d)
		return err == nil && abs == dir
	})
}

// rememberDirs adds the directories of the outputs to the lists in the kept.json files, and removes
// directories that do not exist any more. It returns all directories in the lists.
func (l leftovers) rememberDirs() []string {
	p := l.p
	all := l.keptDirs()
	var files []string
	for _, in := range p.Inlets {
		dir := in.c.State()
		if dir == "" {
			continue
		}
		name := filepath.Join(dir, keptName)
		files = append(files, name)
		var listed []string
		text, err := os.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(text, &listed)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			p.Console.Say("%s: %s; the spools that it names are not checked", name, console.PathFirst(err))
		}
		for _, d := range listed {
			if st, err := os.Stat(d); err == nil && st.IsDir() && !slices.Contains(all, d) {
				all = append(all, d)
			}
		}
	}
	slices.Sort(all)
	text, _ := json.Marshal(all)
	for _, name := range files {
		old, err := os.ReadFile(name)
		if string(old) == string(text) || len(all) == 0 && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := state.Replace(name, text); err != nil {
			p.Console.Say("%s: %s; the spools of removed outputs will not be found", name, console.PathFirst(err))
		}
	}
	return all
}

// reportRemovedIn reports the spools in dir that contain records and do not belong to a current
// output.
func (l leftovers) reportRemovedIn(dir string) {
	p := l.p
	current := map[string]bool{}
	for _, out := range p.Outs {
		if abs, err := filepath.Abs(out.Spec.Text("spool")); out.Spec.Text("spool") != "" && err == nil {
			current[filepath.Join(abs, out.Dir)] = true
		}
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if !e.IsDir() || current[path] {
			continue
		}
		l, err := diskqueue.List(path, false)
		if err != nil || l.Pending == 0 {
			continue
		}
		p.Console.Say("%s wait in %s, the spool of an output that is no longer configured: list them with forebay spool ls, deliver them with forebay spool replay",
			plural.Records(l.Pending), path)
	}
}

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
