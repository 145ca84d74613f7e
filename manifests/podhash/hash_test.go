package podhash

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
	"monopod/manifests/defaults"
	"monopod/manifests/manifesttest"
)

const hashBase = `
metadata: {name: web, namespace: apps, labels: {a: b}, annotations: {c: d}}
spec:
  hostAliases: [{ip: 10.0.0.1, hostnames: [x]}]
  securityContext: {runAsUser: 0}
  volumes:
  - {name: data, hostPath: {path: /data}}
  - {name: other, emptyDir: {}}
  containers:
  - name: one
    image: app:1
    args: ["", x]
    ports: [{containerPort: 80, hostPort: 8080}]
    env: [{name: A, valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}}]
    resources: {limits: {cpu: 0.5}}
    volumeMounts: [{name: data, mountPath: /data}]
  - {name: two, image: app:2, volumeMounts: [{name: other, mountPath: /other}]}
`

// TestHashesDoNotChange pins hashes: they are in labels on running pods, and a change restarts every pod.
func TestHashesDoNotChange(t *testing.T) {
	pod := manifesttest.Pod(t, hashBase)
	defaults.Pod(pod)
	for _, h := range []struct{ name, got, want string }{
		{"pod", Pod(pod), "6192b4dc48d417bce00ecbacf80501d2"},
		{"sandbox", Sandbox(pod), "48ebea953fdc9ad6c9c62867176cd14c"},
		{"container one", Container(pod, "one"), "8dbdf92ebf4b9ba728ff1acb7dbb4e92"},
		{"resources of one", Resources(pod, "one"), "336b99f6ed187d04b2fc23503f13a841"},
		{"resources of two", Resources(pod, "two"), "44136fa355b3678a1146ad16f7e8649e"},
		{"resources of the pod", PodResources(pod), "37287d9a448a18eed2dfa9b79f0047c0"},
		{"container two", Container(pod, "two"), "433738033ccbc1c51d962a093855e020"},
		{"a container that does not exist", Container(pod, "three"), ""},
	} {
		if h.got != h.want {
			t.Errorf("%s: got %s, want %s", h.name, h.got, h.want)
		}
	}
}

func hashesOf(pod *corev1.Pod) map[string]string {
	pod = pod.DeepCopy()
	defaults.Pod(pod)
	return map[string]string{
		"pod": Pod(pod), "sandbox": Sandbox(pod),
		"one": Container(pod, "one"), "two": Container(pod, "two"),
		"size of one": Resources(pod, "one"), "size of two": Resources(pod, "two"), "size of the pod": PodResources(pod),
	}
}

func TestWhatChangesWhichHash(t *testing.T) {
	base := hashesOf(manifesttest.Pod(t, hashBase))
	for _, c := range []struct {
		name     string
		old, new string
		// want lists the hashes that change, besides that of the pod.
		want string
	}{
		{"labels", "a: b", "a: c", ""},
		{"annotations", "c: d", "c: e", ""},
		{"restart policy", "spec:\n", "spec:\n  restartPolicy: Never\n", ""},
		{"grace period", "spec:\n", "spec:\n  terminationGracePeriodSeconds: 1\n", ""},
		{"tolerations", "spec:\n", "spec:\n  tolerations: [{operator: Exists}]\n", ""},
		{"message policy", "image: app:1", "image: app:1\n    terminationMessagePolicy: FallbackToLogsOnError", ""},
		{"pull policy", "image: app:1", "image: app:1\n    imagePullPolicy: Always", ""},
		{"a probe", "image: app:1", "image: app:1\n    livenessProbe: {exec: {command: [x]}}", ""},
		{"the name of a port", "containerPort: 80,", "containerPort: 80, name: web,", ""},
		{"a port without a mapping", "[{containerPort: 80, ", "[{containerPort: 81}, {containerPort: 80, ", ""},
		{"the same quantity in other words", "cpu: 0.5", "cpu: 500m", "same"},
		{"an empty field", "image: app:1", "image: app:1\n    command: []\n    securityContext: {}", "same"},

		{"image", "image: app:1", "image: app:3", "one"},
		{"arguments", `["", x]`, `[x]`, "one"},
		{"a cpu limit", "cpu: 0.5", "cpu: 0.6", "size of one size of the pod"},
		{"a memory limit", "cpu: 0.5", "cpu: 0.5, memory: 1Gi", "size of one size of the pod"},
		{"the limits gone", "resources: {limits: {cpu: 0.5}}", "", "size of one size of the pod"},
		{"a limit of what cannot be changed", "cpu: 0.5", "cpu: 0.5, ephemeral-storage: 1Gi", "one size of the pod"},
		{"resources of the pod", "spec:\n", "spec:\n  resources: {limits: {memory: 1Gi}}\n", "size of one size of two size of the pod"},
		{"when a restart is needed", "image: app:1", "image: app:1\n    resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]", ""},
		{"message path", "image: app:1", "image: app:1\n    terminationMessagePath: /x", "one"},
		{"a mounted volume", "path: /data}", "path: /data2}", "one"},
		{"the other mounted volume", "emptyDir: {}", "emptyDir: {medium: Memory}", "two"},
		{"a volume that nobody mounts", "  containers:\n", "  - {name: third}\n  containers:\n", ""},
		{"the account, which container one shows", "spec:\n", "spec:\n  serviceAccountName: x\n", "one"},
		{"the pod's user", "runAsUser: 0", "runAsUser: 1", "one two"},
		{"the pod's user, root or none", "runAsUser: 0", "", "one two"},
		{"hostPID", "spec:\n", "spec:\n  hostPID: true\n", "one two"},

		{"a host port", "hostPort: 8080", "hostPort: 8081", "sandbox"},
		{"the target of a host port", "containerPort: 80,", "containerPort: 81,", "sandbox"},
		{"host aliases", "hostnames: [x]", "hostnames: [z]", "sandbox"},
		{"hostname", "spec:\n", "spec:\n  hostname: h\n", "sandbox"},
		{"uid", "metadata: {", "metadata: {uid: u, ", "sandbox"},
		{"DNS", "spec:\n", "spec:\n  dnsPolicy: Default\n", "sandbox"},
		{"sysctls", "runAsUser: 0", "runAsUser: 0, sysctls: [{name: net.x, value: z}]", "sandbox"},
		{"host network", "spec:\n", "spec:\n  hostNetwork: true\n", "sandbox one two"},
		{"hostIPC", "spec:\n", "spec:\n  hostIPC: true\n", "sandbox one two"},
	} {
		if !strings.Contains(hashBase, c.old) {
			t.Fatalf("%s: the base has no %q", c.name, c.old)
		}
		now := hashesOf(manifesttest.Pod(t, strings.Replace(hashBase, c.old, c.new, 1)))
		var changed []string
		for _, name := range []string{"sandbox", "one", "two", "size of one", "size of two", "size of the pod"} {
			if now[name] != base[name] {
				changed = append(changed, name)
			}
		}
		want := c.want
		if want == "same" {
			want = ""
		}
		if got := strings.Join(changed, " "); got != want {
			t.Errorf("%s: changes %q, want %q", c.name, got, want)
		}
		if samePod := now["pod"] == base["pod"]; samePod != (c.want == "same") {
			t.Errorf("%s: the pod's hash stays: %t", c.name, samePod)
		}
	}
}

func TestHashesOfDifferentThingsDiffer(t *testing.T) {
	hashes := slices.Sorted(maps.Values(hashesOf(manifesttest.Pod(t, hashBase))))
	if n := len(slices.Compact(hashes)); n != 7 {
		t.Errorf("only %d different hashes", n)
	}
}

func TestCanonicalDropsWhatIsEmptyOnly(t *testing.T) {
	in := map[string]any{
		"null": nil, "text": "", "list": []any{}, "map": map[string]any{}, "deep": map[string]any{"a": map[string]any{"b": ""}},
		"zero": 0, "false": false, "elements": []any{"", map[string]any{}, nil}, "z": "<&>", "large": 9007199254740993,
	}
	want := `{"elements":["",{},null],"false":false,"large":9007199254740993,"z":"\u003c\u0026\u003e","zero":0}`
	if got := string(canonical(in)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestPodsAreNotChangedByHashing(t *testing.T) {
	pod := manifesttest.Pod(t, hashBase)
	defaults.Pod(pod)
	before := string(canonical(pod))
	Sandbox(pod)
	Container(pod, "one")
	if after := string(canonical(pod)); after != before {
		t.Errorf("got %s, want %s", after, before)
	}
}

// TestTheAnnotationOfARestartReplacesContainers checks that no other annotation does.
func TestTheAnnotationOfARestartReplacesContainers(t *testing.T) {
	pod := func(notes map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: notes}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	}
	plain := Container(pod(nil), "c")
	if got := Container(pod(map[string]string{"a": "b", "kubectl.kubernetes.io/restartedAt": "now"}), "c"); got != plain {
		t.Error("another annotation replaces containers")
	}
	once, twice := Container(pod(map[string]string{manifests.AnnotationRestarted: "1"}), "c"), Container(pod(map[string]string{manifests.AnnotationRestarted: "2"}), "c")
	if once == plain || once == twice {
		t.Error("a restart replaces nothing")
	}
}
