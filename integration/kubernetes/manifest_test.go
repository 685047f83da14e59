package kubernetes

import (
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Every field of the manifest exists in the Kubernetes API and has the right type.
func TestManifest(t *testing.T) {
	text, err := os.ReadFile("../../deploy/kubernetes/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	var set appsv1.DaemonSet
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		var kind struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, kind.APIVersion+" "+kind.Kind)
		var o any
		switch kind.Kind {
		case "Namespace":
			o = new(corev1.Namespace)
		case "ConfigMap":
			o = new(corev1.ConfigMap)
		case "DaemonSet":
			o = &set
		default:
			t.Fatalf("this test does not know %+v", kind)
		}
		js, err := yaml.YAMLToJSONStrict([]byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		// The API server also decodes strictly. encoding/json would accept field names in a
		// different case.
		wrong, err := json.UnmarshalStrict(js, o)
		if err != nil || len(wrong) > 0 {
			t.Errorf("%s: %v, %v", kind.Kind, err, wrong)
		}
	}
	if want := []string{"v1 Namespace", "v1 ConfigMap", "apps/v1 DaemonSet"}; !slices.Equal(kinds, want) {
		t.Errorf("%q, want %q", kinds, want)
	}
	// Some of the following checks repeat those of the API server. The others concern the behavior
	// of the pods.
	pod := &set.Spec.Template
	for name, value := range set.Spec.Selector.MatchLabels {
		if pod.Labels[name] != value {
			t.Errorf("the pod lacks the label %s=%s of the selector", name, value)
		}
	}
	if pod.Spec.RestartPolicy != "" && pod.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		t.Errorf("restartPolicy %s, want Always", pod.Spec.RestartPolicy)
	}
	for _, c := range pod.Spec.Containers {
		if limit, request := c.Resources.Limits.Memory(), c.Resources.Requests.Memory(); limit.Cmp(*request) < 0 {
			t.Errorf("memory: the limit %v is below the request %v", limit, request)
		}
		if c.LivenessProbe == nil || c.ReadinessProbe == nil || c.LivenessProbe.HTTPGet == nil || c.ReadinessProbe.HTTPGet == nil {
			t.Error("a container has no liveness or readiness probe over HTTP")
		}
	}
}
