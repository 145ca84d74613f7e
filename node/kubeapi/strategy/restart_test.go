package strategy

import (
	"maps"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"

	"monopod/manifests"
	"monopod/node/kubeapi/kinds"
)

func TestAnnotationsThatClientsWriteForItReplacePods(t *testing.T) {
	const restarted = "kubectl.kubernetes.io/restartedAt"
	for name, tt := range map[string]struct {
		before, after map[string]string
		replaced      bool
	}{
		"rollout restart":          {nil, map[string]string{restarted: "1"}, true},
		"once more":                {map[string]string{restarted: "1"}, map[string]string{restarted: "2"}, true},
		"another checksum":         {map[string]string{"checksum/config": "a"}, map[string]string{"checksum/config": "b"}, true},
		"without the checksum":     {map[string]string{"checksum/config": "a"}, nil, true},
		"the same":                 {map[string]string{restarted: "1", "checksum/config": "a"}, map[string]string{restarted: "1", "checksum/config": "a", "other": "x"}, false},
		"another annotation":       {nil, map[string]string{"example.com/checksum": "1"}, false},
		"monopod restart, as well": {nil, map[string]string{restarted: "1", manifests.AnnotationRestarted: "own"}, false},
	} {
		for _, pair := range [][2]kinds.Object{{&appsv1.Deployment{}, &appsv1.Deployment{}}, {&appsv1.StatefulSet{}, &appsv1.StatefulSet{}}, {&appsv1.DaemonSet{}, &appsv1.DaemonSet{}}} {
			before, _, _ := manifests.TemplateOf(pair[0])
			after, _, _ := manifests.TemplateOf(pair[1])
			before.Annotations, after.Annotations = tt.before, maps.Clone(tt.after)
			restart(pair[0], pair[1])
			if got := after.Annotations[manifests.AnnotationRestarted] != tt.after[manifests.AnnotationRestarted]; got != tt.replaced {
				t.Errorf("%s: %T: %v", name, pair[0], after.Annotations)
			}
		}
	}
	old, now := &batchv1.Job{}, &batchv1.Job{}
	now.Spec.Template.Annotations = map[string]string{restarted: "1"}
	if restart(old, now); len(now.Spec.Template.Annotations) != 1 {
		t.Error("a Job cannot be restarted")
	}
}

// TestEachRestartIsAnother: the same value twice in a row would replace nothing.
func TestEachRestartIsAnother(t *testing.T) {
	values := map[string]bool{}
	old := &appsv1.Deployment{}
	for _, at := range []string{"1", "2", "3"} {
		now := old.DeepCopy()
		if now.Spec.Template.Annotations == nil {
			now.Spec.Template.Annotations = map[string]string{}
		}
		now.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] = at
		restart(old, now)
		values[now.Spec.Template.Annotations[manifests.AnnotationRestarted]] = true
		old = now
	}
	if len(values) != 3 || values[""] {
		t.Error(values)
	}
}

// TestAReplaceFromTheClientsOwnSourceReplacesNoPods: the annotation that monopod has set is not in the source of the client.
func TestAReplaceFromTheClientsOwnSourceReplacesNoPods(t *testing.T) {
	const key = manifests.AnnotationRestarted
	source := func(checksum string) *appsv1.Deployment {
		d := &appsv1.Deployment{}
		d.Spec.Template.Annotations = map[string]string{"checksum/config": checksum}
		return d
	}
	first, changed, again, next := source("1"), source("2"), source("2"), source("3")
	restart(first, changed)
	value := changed.Spec.Template.Annotations[key]
	if restart(changed, again); value == "" || again.Spec.Template.Annotations[key] != value {
		t.Errorf("replaced with the same checksum: %q, before %q", again.Spec.Template.Annotations[key], value)
	}
	if restart(again, next); next.Spec.Template.Annotations[key] == "" || next.Spec.Template.Annotations[key] == value {
		t.Errorf("with another checksum: %q, before %q", next.Spec.Template.Annotations[key], value)
	}
	before, after := source("1"), &appsv1.Deployment{}
	before.Spec.Template.Annotations = map[string]string{key: "own"}
	if restart(before, after); after.Spec.Template.Annotations[key] != "own" {
		t.Errorf("that of monopod restart is gone: %v", after.Spec.Template.Annotations)
	}
}
