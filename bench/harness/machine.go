package harness

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// Machine describes the machine of a run.
type Machine struct {
	CPU        string `json:"cpu"`
	Processors int    `json:"processors"`
	MaxProcs   int    `json:"gomaxprocs"`
	OS         string `json:"os"`
	Arch       string `json:"arch"`
	Kernel     string `json:"kernel,omitempty"`
	GoVersion  string `json:"go"`
	FileSystem string `json:"filesystem,omitempty"` // type of the file system on which rows write files
	// Load is the load average over the minute before the run.
	Load string `json:"load,omitempty"`
}

// ThisMachine describes this machine.
func ThisMachine() Machine {
	return Machine{
		CPU: cpuModel(), Processors: runtime.NumCPU(), MaxProcs: runtime.GOMAXPROCS(0),
		OS: runtime.GOOS, Arch: runtime.GOARCH, GoVersion: runtime.Version(),
		Kernel: firstField("/proc/sys/kernel/osrelease"), FileSystem: fileSystem(os.TempDir()),
		Load: firstField("/proc/loadavg"),
	}
}

func cpuModel() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}

// firstField returns the first word of a file, or "" if the file does not exist.
func firstField(path string) (field string) {
	b, _ := os.ReadFile(path)
	fmt.Sscan(string(b), &field)
	return field
}

// fileSystem returns the type of the file system of dir, or "" if df does not report it.
func fileSystem(dir string) string {
	out, _ := exec.Command("df", "--output=fstype", dir).Output()
	_, kind, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(kind)
}

// Commit returns the commit of the working tree. It appends "+changes" if tracked files are
// modified. It returns "unknown" if git fails.
func Commit() string {
	out, err := exec.Command("git", "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=+changes").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
