package manifests_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/manifests/manifesttest"
)

// shop is a pod with a plain init container, a sidecar and two containers.
const shop = `
apiVersion: v1
kind: Pod
metadata: {name: shop, namespace: default}
spec:
  initContainers:
  - {name: migrate, image: i, resources: {requests: {cpu: "4"}, limits: {memory: 1Gi}}}
  - {name: proxy, image: i, restartPolicy: Always, resources: {requests: {cpu: "1"}, limits: {memory: 1Gi}}}
  - {name: warm, image: i, resources: {requests: {cpu: "2", memory: 3Gi}}}
  containers:
  - {name: web, image: i, resources: {requests: {cpu: "1"}, limits: {memory: 2Gi}}, volumeMounts: [{name: data, mountPath: /d}]}
  - {name: log, image: i, resources: {requests: {cpu: 500m, memory: 1Gi}, limits: {memory: 1Gi}}, volumeDevices: [{name: disk, devicePath: /x}]}
`

func TestContainersInTheirOrder(t *testing.T) {
	spec := &manifesttest.Pod(t, shop).Spec
	names := func(all func(func(*corev1.Container) bool)) (names []string) {
		for c := range all {
			names = append(names, c.Name)
		}
		return names
	}
	if got := names(manifests.AllContainers(spec)); !slices.Equal(got, []string{"migrate", "proxy", "warm", "web", "log"}) {
		t.Errorf("all containers are %v", got)
	}
	if got := names(manifests.LongRunningContainers(spec)); !slices.Equal(got, []string{"proxy", "web", "log"}) {
		t.Errorf("lasting containers are %v", got)
	}
	for range manifests.LongRunningContainers(spec) {
		break // the iterator stops, too
	}
	if c := manifests.FindContainer(spec, "proxy"); c == nil || !manifests.IsSidecar(c) {
		t.Errorf("proxy is %+v", c)
	}
	if c := manifests.FindContainer(spec, "none"); c != nil {
		t.Errorf("found %+v", c)
	}
	for _, tt := range []struct {
		container, volume string
		want              bool
	}{
		{"web", "data", true},
		{"web", "disk", false},
		{"log", "disk", true},
		{"log", "data", false},
	} {
		if got := manifests.UsesVolume(manifests.FindContainer(spec, tt.container), tt.volume); got != tt.want {
			t.Errorf("%s uses %s: %v", tt.container, tt.volume, got)
		}
	}
}
