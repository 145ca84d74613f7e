package pool_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/runtimetest"
)

// needy is a runtime whose containers need the ConfigMap "app", as with ctrd; it records the content that volumes were synced with.
type needy struct {
	runner.Runtime
	mu     sync.Mutex
	synced []string
}

func (n *needy) Apply(ctx context.Context, key manifests.Key, pod *manifests.Pod, a runner.Action) error {
	if a.Kind == runner.CreateContainer || a.Kind == runner.SyncVolumes {
		m := pod.Refs.ConfigMap("app")
		if m == nil {
			return &runner.StepError{Reason: runner.ReasonFailedMount, Err: errors.New(`configmap "app" not found`)}
		}
		if a.Kind == runner.SyncVolumes {
			n.mu.Lock()
			n.synced = append(n.synced, m.Data["k"])
			n.mu.Unlock()
		}
	}
	return n.Runtime.Apply(ctx, key, pod, a)
}

func (n *needy) last() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.synced, " ")
}

func appMap(value string) []*manifests.Object {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "app"}, Data: map[string]string{"k": value}}
	return []*manifests.Object{{Object: m, Kind: "ConfigMap"}}
}

func configMapPod() *manifests.Pod {
	return edited(testPod("web", testContainer("a", runtimetest.ScriptServe)), func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "app"}},
		}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
	})
}

func TestPodWaitsForReferencedObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		n := &needy{Runtime: r.fake}
		r.runtime = n
		r.start()
		pods := []*manifests.Pod{configMapPod()}
		update := func(o []*manifests.Object) {
			r.pool.Update(model.Desired{Pods: pods, Objects: o})
			r.pass(time.Millisecond)
		}
		update(nil)
		r.pass(time.Hour) // the longest back-off
		s := r.status("web")
		if w := s.Pod.Status.ContainerStatuses[0].State.Waiting; w == nil || w.Reason != runner.ReasonFailedMount || !strings.Contains(s.Why, `configmap "app" not found`) {
			t.Fatalf("it waits for %+v, why: %s", w, s.Why)
		}
		update(appMap("1"))
		if s := r.status("web"); s.Pod.Status.Phase != corev1.PodRunning || s.Why != "" {
			t.Fatalf("the object is there, the pod is %s: %s", s.Pod.Status.Phase, s.Why)
		}
		first := r.status("web").Pod.Status.ContainerStatuses[0].ContainerID

		update(appMap("2"))
		if got := n.last(); got != "1 2" {
			t.Errorf("synced with %q", got)
		}
		r.pass(time.Hour)
		if got := n.last(); got != "1 2" {
			t.Errorf("synced without a change: %q", got)
		}
		update(nil)
		s = r.status("web")
		if s.Pod.Status.Phase != corev1.PodRunning || !strings.Contains(s.Why, "running containers continue") {
			t.Errorf("the object is gone, the pod is %s: %s", s.Pod.Status.Phase, s.Why)
		}
		update(appMap("3"))
		s = r.status("web")
		if got := n.last(); got != "1 2 3" || s.Why != "" || s.Pod.Status.ContainerStatuses[0].ContainerID != first {
			t.Errorf("synced with %q, why: %s", got, s.Why)
		}
	})
}

// TestVolumesWithTokensAreSyncedInTime though nothing changes: twice before four fifths of the life of a token are over.
func TestVolumesWithTokensAreSyncedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		n := &needy{Runtime: r.fake}
		r.runtime = n
		r.start()
		pod := edited(configMapPod(), func(p *corev1.Pod) { manifests.AddTokenVolume(&p.Spec) })
		r.pool.Update(model.Desired{Pods: []*manifests.Pod{pod}, Objects: appMap("x")})
		r.pass(time.Minute)
		first := n.last()
		for _, step := range []struct {
			wait time.Duration
			more string
		}{{20 * time.Minute, ""}, {5 * time.Minute, " x"}, {24 * time.Minute, " x"}, {10 * time.Minute, ""}} {
			r.pass(step.wait)
			if first += step.more; n.last() != first {
				t.Errorf("after %s more: %q, want %q", step.wait, n.last(), first)
			}
		}
	})
}
