package environ

import (
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/runner/spec"
	"monopod/runner/spec/spectest"
)

func TestNeedsIPs(t *testing.T) {
	field := func(path string) []corev1.EnvVar {
		return []corev1.EnvVar{{Name: "X", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}}
	}
	for path, want := range map[string]bool{"status.podIP": true, "status.podIPs": true, "status.hostIP": false, "metadata.name": false} {
		pod := spectest.Pod(func(_ *corev1.Pod, c *corev1.Container) { c.Env = field(path) })
		if got := NeedsIPs(pod, "app"); got != want {
			t.Errorf("NeedsIPs with %s = %t", path, got)
		}
		pod.Spec.HostNetwork = true
		if NeedsIPs(pod, "app") {
			t.Errorf("NeedsIPs with %s in the host network", path)
		}
	}
	if NeedsIPs(spectest.Pod(nil), "app") || NeedsIPs(spectest.Pod(nil), "other") {
		t.Error("NeedsIPs without variables")
	}
}

func TestResourceFields(t *testing.T) {
	tests := []struct{ resource, divisor, want string }{
		{"requests.cpu", "", "1"},
		{"requests.cpu", "1m", "250"},
		{"limits.cpu", "1m", "2000"},
		{"limits.cpu", "3", "1"},
		{"requests.memory", "", "67108865"},
		{"requests.memory", "1Mi", "65"},
		{"requests.memory", "1", "67108865"},
		{"limits.memory", "1Gi", "8"},
		{"requests.ephemeral-storage", "", "0"},
		{"limits.ephemeral-storage", "1Gi", "100"},
		{"limits.hugepages-2Mi", "", "0"},
	}
	for _, tt := range tests {
		t.Run(tt.resource+" in "+tt.divisor, func(t *testing.T) {
			pod := spectest.Pod(func(_ *corev1.Pod, c *corev1.Container) { c.Resources.Requests = spectest.Amounts("250m", "67108865") })
			in := spectest.Input(pod, "app")
			in.Host.EphemeralStorageBytes = 100 << 30
			ref := &corev1.ResourceFieldSelector{Resource: tt.resource}
			if tt.divisor != "" {
				ref.Divisor = resource.MustParse(tt.divisor)
			}
			got, err := Resource(in, &pod.Spec.Containers[0], ref)
			if err != nil || got != tt.want {
				t.Errorf("resourceValue = %s, %v, want %s", got, err, tt.want)
			}
		})
	}
}

func TestFields(t *testing.T) {
	for name, tt := range map[string]struct {
		field, want string
		edit        func(*spec.Input)
		fails       bool
	}{
		"a name":                      {field: "metadata.name", want: "web"},
		"a namespace":                 {field: "metadata.namespace", want: "default"},
		"the uid of the running pod":  {field: "metadata.uid", want: "u1"},
		"the node":                    {field: "spec.nodeName", want: "node1"},
		"an account":                  {field: "spec.serviceAccountName", want: "robot"},
		"a label":                     {field: "metadata.labels['app.kubernetes.io/name']", want: "shop"},
		"a label that does not exist": {field: "metadata.labels['x']"},
		"an annotation":               {field: "metadata.annotations['note']", want: "it's"},
		"the address of the node":     {field: "status.hostIP", want: "192.0.2.10"},
		"all of the node":             {field: "status.hostIPs", want: "192.0.2.10,2001:db8::10"},
		"the address of the pod":      {field: "status.podIP", want: "10.1.0.5"},
		"all of the pod":              {field: "status.podIPs", want: "10.1.0.5,fd00::5"},
		"of a pod without addresses":  {field: "status.podIP", edit: func(in *spec.Input) { in.Sandbox.IPs = nil }, fails: true},
		"all of such a pod":           {field: "status.podIPs", edit: func(in *spec.Input) { in.Sandbox.IPs = nil }, fails: true},
		"of a node without addresses": {field: "status.hostIPs", edit: func(in *spec.Input) { in.Host.NodeIPs = nil }, fails: true},
		"a field that no pod has":     {field: "spec.other", fails: true},
		"all labels at once":          {field: "metadata.labels", fails: true},
		"of a pod in the host network": {field: "status.podIP", want: "192.0.2.10", edit: func(in *spec.Input) {
			in.Pod.Spec.HostNetwork, in.Sandbox.IPs = true, nil
		}},
	} {
		pod := spectest.Pod(func(p *corev1.Pod, _ *corev1.Container) {
			p.Labels, p.Annotations = map[string]string{"app.kubernetes.io/name": "shop"}, map[string]string{"note": "it's"}
			p.Spec.ServiceAccountName = "robot"
		})
		in := spectest.Input(pod, "app")
		if tt.edit != nil {
			tt.edit(&in)
		}
		if got, err := Field(in, tt.field); got != tt.want || (err != nil) != tt.fails {
			t.Errorf("%s: %q, %v, want %q", name, got, err, tt.want)
		}
	}
}

func TestResourcesOfOtherContainersAndOfTheMachine(t *testing.T) {
	pod := spectest.Pod(func(p *corev1.Pod, c *corev1.Container) {
		c.Resources.Limits = spectest.Amounts("1500m", "")
		p.Spec.InitContainers = []corev1.Container{{Name: "init", Resources: corev1.ResourceRequirements{Limits: spectest.Amounts("", "1Gi")}}}
	})
	in := spectest.Input(pod, "app")
	for name, tt := range map[string]struct {
		ref   corev1.ResourceFieldSelector
		want  string
		fails bool
	}{
		"its own":                         {corev1.ResourceFieldSelector{Resource: "limits.cpu"}, "2", false},
		"of an init container":            {corev1.ResourceFieldSelector{ContainerName: "init", Resource: "limits.memory"}, "1073741824", false},
		"of none":                         {corev1.ResourceFieldSelector{ContainerName: "other", Resource: "limits.cpu"}, "", true},
		"the machine's memory":            {corev1.ResourceFieldSelector{Resource: "limits.memory", Divisor: resource.MustParse("1Gi")}, "8", false},
		"a disk that nobody has measured": {corev1.ResourceFieldSelector{Resource: "limits.ephemeral-storage"}, "", true},
		"neither limit nor request":       {corev1.ResourceFieldSelector{Resource: "status.cpu"}, "", true},
		"a resource of a plug-in":         {corev1.ResourceFieldSelector{Resource: "limits.example.com/gpu"}, "", true},
	} {
		if got, err := Resource(in, &pod.Spec.Containers[0], &tt.ref); got != tt.want || (err != nil) != tt.fails {
			t.Errorf("%s: %q, %v, want %q", name, got, err, tt.want)
		}
	}
	if got := divideUp(math.MaxInt64, math.MaxInt64-1); got != "2" {
		t.Errorf("large numbers: %s", got)
	}
}
