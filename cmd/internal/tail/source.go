package tail

import (
	"path/filepath"

	"github.com/forebay-log/forebay/internal/lazy"
)

// A Source is the file that a line comes from.
type Source struct {
	Path string

	// Pod, Namespace and Container are taken from the name of the file if Kubernetes has named it.
	// They are empty for other files.
	Pod, Namespace, Container string
}

// containerLog matches POD_NAMESPACE_CONTAINER-ID.log, the names that Kubernetes gives to log files
// in /var/log/containers. None of the parts contains '_'.
var containerLog = lazy.Regexp(`^([^_]+)_([^_]+)_(.+)-[0-9a-f]{64}\.log$`)

// sourceOf returns the Source of the file at path.
func sourceOf(path string) *Source {
	s := &Source{Path: path}
	if m := containerLog().FindStringSubmatch(filepath.Base(path)); m != nil {
		s.Pod, s.Namespace, s.Container = m[1], m[2], m[3]
	}
	return s
}
