package tail

import (
	"path/filepath"

	"github.com/forebay-log/forebay/internal/lazy"
)

// A Source is the file that a line comes from.
type Source struct {
	Path string

	// Set for a file in /var/log/containers, from its name.
	Pod, Namespace, Container string
}

// Kubernetes names log files POD_NAMESPACE_CONTAINER-ID.log. None of the parts contains '_'.
var containerLog = lazy.Regexp(`^([^_]+)_([^_]+)_(.+)-[0-9a-f]{64}\.log$`)

func sourceOf(path string) *Source {
	s := &Source{Path: path}
	if m := containerLog().FindStringSubmatch(filepath.Base(path)); m != nil {
		s.Pod, s.Namespace, s.Container = m[1], m[2], m[3]
	}
	return s
}
