// Package deploy tests the files in the directory deploy, which operators install. No service
// manager, registry or cluster is needed.
package deploy

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// repository is the path of the root directory of this repository.
const repository = "../../.."

// read returns the content of a file. A relative name is relative to the directory deploy.
func read(t *testing.T, name string) string {
	t.Helper()
	if !filepath.IsAbs(name) {
		name = filepath.Join(repository, "deploy", name)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// config contains the keys of forebay.yaml that the tests examine.
type config struct {
	Metrics string
	Inputs  map[string]struct {
		Type  string
		Files []string
		State string
	}
	Outputs map[string]struct {
		To        string
		Label     []string
		Spool     string
		CrashSafe string `yaml:"crash-safe"`
	}
}

func parse(t *testing.T, text string) (c config) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// writtenDirs returns the directories to which a program with this configuration writes.
func (c *config) writtenDirs() (dirs []string) {
	for _, in := range c.Inputs {
		dirs = append(dirs, in.State)
	}
	for _, out := range c.Outputs {
		dirs = append(dirs, out.Spool, out.CrashSafe)
	}
	return dirs
}

func under(dir, parent string) bool { return strings.HasPrefix(dir, parent+"/") }

// settings returns the settings of a systemd unit. The values of a setting are in the order of the
// file.
func settings(unit string) map[string][]string {
	of := map[string][]string{}
	for line := range strings.Lines(unit) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if ok && !strings.HasPrefix(name, "#") {
			of[name] = append(of[name], value)
		}
	}
	return of
}

func TestUnitIsHardenedAndFitsConfig(t *testing.T) {
	unit := read(t, "systemd/forebay.service")
	of := settings(unit)
	for name, want := range map[string]string{
		"Type": "notify", "DynamicUser": "yes", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "CapabilityBoundingSet": "",
		"ExecStart": "forebay run -c /etc/forebay/forebay.yaml", "ExecReload": "kill -HUP $MAINPID",
		"RestartPreventExitStatus": "2 78", "SuccessExitStatus": "75", "RuntimeDirectory": "forebay",
	} {
		if !slices.Equal(of[name], []string{want}) {
			t.Errorf("%s is %q, want %q", name, of[name], want)
		}
	}
	c := parse(t, read(t, "systemd/forebay.yaml"))
	for _, dir := range c.writtenDirs() {
		if !under(dir, path.Join("/var/lib", of["StateDirectory"][0])) {
			t.Errorf("%q is not in the StateDirectory", dir)
		}
	}

	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not here: the unit is not verified")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	there := filepath.Join(t.TempDir(), "forebay.service")
	if err := os.WriteFile(there, []byte(strings.ReplaceAll(unit, "ExecStart=forebay", "ExecStart="+self)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(analyze, "verify", "--man=no", there).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	// With the value 20, --threshold makes systemd-analyze fail if the exposure level of the unit
	// exceeds 2.0.
	if out, err := exec.Command(analyze, "security", "--offline=true", "--threshold=20", there).CombinedOutput(); err != nil {
		if strings.Contains(string(out), "unrecognized option") {
			t.Skip("this systemd-analyze knows no security --offline")
		}
		t.Errorf("systemd-analyze security: %v\n%s", err, out)
	}
}

// An object contains the fields of a Kubernetes object that the tests examine. Other tests, in
// integration/kubernetes, validate whole objects.
type object struct {
	Kind     string
	Metadata struct{ Name, Namespace string }
	Data     map[string]string
	Spec     struct {
		Template struct {
			Metadata struct{ Annotations map[string]string }
			Spec     struct {
				TerminationGracePeriodSeconds int `yaml:"terminationGracePeriodSeconds"`
				Containers                    []container
				Volumes                       []struct {
					Name      string
					ConfigMap *struct{ Name string } `yaml:"configMap"`
					HostPath  *struct{ Path string } `yaml:"hostPath"`
				}
			}
		}
	}
}

type container struct {
	Env []struct {
		Name string
	}
	Ports []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	ReadinessProbe  probe `yaml:"readinessProbe"`
	LivenessProbe   probe `yaml:"livenessProbe"`
	SecurityContext struct {
		ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
		AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
		Capabilities             struct{ Drop, Add []string }
	} `yaml:"securityContext"`
	VolumeMounts []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
		ReadOnly  bool   `yaml:"readOnly"`
	} `yaml:"volumeMounts"`
}

type probe struct {
	HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
}

// objects returns the Kubernetes objects in the file of the DaemonSet, by their kinds.
func objects(t *testing.T) map[string]object {
	t.Helper()
	by := map[string]object{}
	for doc := range strings.SplitSeq(read(t, "kubernetes/daemonset.yaml"), "\n---\n") {
		var o object
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatal(err)
		}
		by[o.Kind] = o
	}
	return by
}

// The DaemonSet, its ConfigMap and the image use the same names, ports and paths.
func TestDaemonSetFitsConfigAndImage(t *testing.T) {
	by := objects(t)
	set := by["DaemonSet"]
	pod := set.Spec.Template.Spec
	if len(by) != 3 || len(pod.Containers) != 1 || set.Metadata.Namespace != by["Namespace"].Metadata.Name {
		t.Fatalf("%+v", by)
	}
	box := pod.Containers[0]
	c := parse(t, by["ConfigMap"].Data["forebay.yaml"])

	// The kubelet and Prometheus use the port at which forebay serves its metrics.
	if port := box.Ports[0]; port.Name != "metrics" || c.Metrics != "0.0.0.0:9090" || port.ContainerPort != 9090 ||
		set.Spec.Template.Metadata.Annotations["prometheus.io/port"] != "9090" {
		t.Errorf("metrics on %s, port %+v", c.Metrics, port)
	}
	if box.ReadinessProbe.HTTPGet != (struct{ Path, Port string }{"/-/ready", "metrics"}) || box.LivenessProbe.HTTPGet != (struct{ Path, Port string }{"/-/healthy", "metrics"}) {
		t.Errorf("probes %+v, %+v", box.ReadinessProbe, box.LivenessProbe)
	}
	sec := box.SecurityContext
	if !sec.ReadOnlyRootFilesystem || sec.AllowPrivilegeEscalation == nil || *sec.AllowPrivilegeEscalation ||
		!slices.Equal(sec.Capabilities.Drop, []string{"ALL"}) || len(sec.Capabilities.Add) > 0 {
		t.Errorf("%+v", sec)
	}
	if pod.TerminationGracePeriodSeconds <= 30 {
		t.Error("terminationGracePeriodSeconds must be greater than drain-timeout, 30 s")
	}
	if to := c.Outputs["loki"]; !slices.Equal(to.Label, []string{"node=${NODE_NAME}"}) || box.Env[0].Name != "NODE_NAME" {
		t.Errorf("%+v, %+v", to, box.Env)
	}

	// The pod mounts every directory and file in the configuration. Only the directories that
	// forebay writes to are writable.
	writable := func(dir string) (mounted, rw bool) {
		for _, m := range box.VolumeMounts {
			if dir == m.MountPath || under(dir, m.MountPath) {
				return true, !m.ReadOnly
			}
		}
		return false, false
	}
	for _, dir := range append(c.writtenDirs(), "/run/forebay") {
		if mounted, rw := writable(dir); !mounted || !rw {
			t.Errorf("%q: mounted %v, writable %v", dir, mounted, rw)
		}
	}
	for _, file := range append(c.Inputs["pods"].Files, configOfImage(t)) {
		if mounted, rw := writable(file); !mounted || rw {
			t.Errorf("%q: mounted %v, writable %v", file, mounted, rw)
		}
	}
	for _, m := range box.VolumeMounts {
		i := slices.IndexFunc(pod.Volumes, func(v struct {
			Name      string
			ConfigMap *struct{ Name string } `yaml:"configMap"`
			HostPath  *struct{ Path string } `yaml:"hostPath"`
		}) bool {
			return v.Name == m.Name
		})
		if i < 0 {
			t.Errorf("%s mounts a volume that is not there", m.MountPath)
			continue
		}
		if v := pod.Volumes[i]; v.HostPath != nil && v.HostPath.Path != m.MountPath || v.ConfigMap != nil && v.ConfigMap.Name != by["ConfigMap"].Metadata.Name {
			t.Errorf("%s is %+v", m.MountPath, v)
		}
	}
}
