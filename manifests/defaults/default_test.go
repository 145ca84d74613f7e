package defaults

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"monopod/manifests/manifesttest"
)

func TestDefaults(t *testing.T) {
	pod := manifesttest.Pod(t, `
spec:
  hostNetwork: true
  serviceAccount: robot
  terminationGracePeriodSeconds: -3
  volumes: [{name: a}, {name: b, hostPath: {path: /b}}]
  containers:
  - name: c
    image: app
    ports: [{containerPort: 80}, {containerPort: 81, hostPort: 81}]
    resources: {limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 0.0005}}
    env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
`)
	Pod(pod)
	c := pod.Spec.Containers[0]
	for _, d := range []struct {
		name      string
		got, want any
	}{
		{"namespace", pod.Namespace, "default"},
		{"name", pod.Name, ""},
		{"uid", string(pod.UID), ""},
		{"restart policy", pod.Spec.RestartPolicy, corev1.RestartPolicyAlways},
		{"DNS policy", pod.Spec.DNSPolicy, corev1.DNSClusterFirst},
		{"a negative grace period", *pod.Spec.TerminationGracePeriodSeconds, int64(1)},
		{"scheduler", pod.Spec.SchedulerName, "default-scheduler"},
		{"service links", *pod.Spec.EnableServiceLinks, true},
		{"the new name of serviceAccount", pod.Spec.ServiceAccountName, "robot"},
		{"a volume without a source", pod.Spec.Volumes[0].EmptyDir != nil, true},
		{"a host path's type", *pod.Spec.Volumes[1].HostPath.Type, corev1.HostPathUnset},
		{"a port of a host-network pod", c.Ports[0].HostPort, int32(80)},
		{"protocol", c.Ports[0].Protocol, corev1.ProtocolTCP},
		{"pull policy", c.ImagePullPolicy, corev1.PullAlways},
		{"message path", c.TerminationMessagePath, "/dev/termination-log"},
		{"message policy", c.TerminationMessagePolicy, corev1.TerminationMessageReadFile},
		{"a request from a limit", c.Resources.Requests.Memory().String(), "1Gi"},
		{"a request finer than a thousandth", c.Resources.Requests.Cpu().String(), "1m"},
		{"the version of a field", c.Env[0].ValueFrom.FieldRef.APIVersion, "v1"},
	} {
		if d.got != d.want {
			t.Errorf("%s: got %v, want %v", d.name, d.got, d.want)
		}
	}
	again := pod.DeepCopy()
	Pod(again)
	if diff := cmp.Diff(pod, again); diff != "" {
		t.Errorf("defaulting twice changes something: %s", diff)
	}
}

func TestPullPolicyFollowsTheTag(t *testing.T) {
	for image, want := range map[string]corev1.PullPolicy{
		"app":                        corev1.PullAlways,
		"app:latest":                 corev1.PullAlways,
		"localhost:5000/app":         corev1.PullAlways,
		"app:1":                      corev1.PullIfNotPresent,
		"app@sha256:" + hex64:        corev1.PullIfNotPresent,
		"app:latest@sha256:" + hex64: corev1.PullAlways,
		"Not an image":               corev1.PullIfNotPresent,
		"":                           corev1.PullIfNotPresent,
	} {
		if got := defaultPullPolicy(image); got != want {
			t.Errorf("%q: got %s, want %s", image, got, want)
		}
	}
}

const hex64 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestResourcesOfThePodAreCompleted(t *testing.T) {
	for _, c := range []struct{ name, pod, containers, want string }{
		{"none", "", "{requests: {cpu: 1}}", "null"},
		{"requests are those of the containers", "{limits: {cpu: 2, memory: 1Gi}}", "{requests: {cpu: 1}}", `{"limits":{"cpu":"2","memory":"1Gi"},"requests":{"cpu":"1","memory":"1Gi"}}`},
		{"else the limits", "{limits: {cpu: 2}}", "{}", `{"limits":{"cpu":"2"},"requests":{"cpu":"2"}}`},
		{"what is written stays", "{limits: {cpu: 2}, requests: {cpu: 500m}}", "{requests: {cpu: 100m, memory: 1Mi}}", `{"limits":{"cpu":"2"},"requests":{"cpu":"500m","memory":"1Mi"}}`},
		{"huge pages are limited to those of the containers", "{limits: {cpu: 2}}", "{limits: {hugepages-2Mi: 2Mi, ephemeral-storage: 1Gi}}", `{"limits":{"cpu":"2","hugepages-2Mi":"2Mi"},"requests":{"cpu":"2","hugepages-2Mi":"2Mi"}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := "spec: {containers: [{name: a, resources: " + c.containers + "}]"
			if c.pod != "" {
				text += ", resources: " + c.pod
			}
			pod := manifesttest.Pod(t, text+"}")
			for range 2 {
				Pod(pod)
				if b, err := json.Marshal(pod.Spec.Resources); err != nil || string(b) != c.want {
					t.Errorf("got %s, %v, want %s", b, err, c.want)
				}
			}
		})
	}
}

func TestLimitsOfANewPodAreCompleted(t *testing.T) {
	for _, c := range []struct{ name, pod, containers, want string }{
		{"none", "", "{limits: {cpu: 1}}", "null"},
		{"those of the containers", "{requests: {cpu: 1}}", "{limits: {cpu: 2, memory: 1Gi}}", `{"limits":{"cpu":"2","memory":"1Gi"},"requests":{"cpu":"1","memory":"1Gi"}}`},
		{"the request if it is more", "{requests: {cpu: 3}}", "{limits: {cpu: 2}}", `{"limits":{"cpu":"3"},"requests":{"cpu":"3"}}`},
		{"what is written stays", "{limits: {cpu: 4}}", "{limits: {cpu: 2}}", `{"limits":{"cpu":"4"},"requests":{"cpu":"2"}}`},
		{"no limit where a container has none", "{requests: {cpu: 1}}", "{requests: {cpu: 1}}", `{"requests":{"cpu":"1"}}`},
		{"none of what a pod cannot have", "{requests: {cpu: 1}}", "{limits: {cpu: 1, ephemeral-storage: 1Gi}}", `{"limits":{"cpu":"1"},"requests":{"cpu":"1"}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := "spec: {containers: [{name: a, resources: " + c.containers + "}]"
			if c.pod != "" {
				text += ", resources: " + c.pod
			}
			pod := manifesttest.Pod(t, text+"}")
			for range 2 {
				Pod(pod)
				PodLimits(&pod.Spec)
				if b, err := json.Marshal(pod.Spec.Resources); err != nil || string(b) != c.want {
					t.Errorf("got %s, %v, want %s", b, err, c.want)
				}
			}
		})
	}
}
