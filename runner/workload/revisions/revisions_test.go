package revisions

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
)

// TestFollowIsPure: a view of the history that is not stored yet.
func TestFollowIsPure(t *testing.T) {
	d := &appsv1.Deployment{}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "a"}}
	doc := Document{Object: d, Origin: manifests.Origin{Source: "file", File: "w.yaml", Line: 1}}
	first := Follow(nil, doc, "h1")
	if again := Follow(first, doc, "h1"); again != first {
		t.Error("it is another history although nothing has changed")
	}
	next := d.DeepCopy()
	next.Spec.Template.Spec.Containers[0].Image = "b"
	doc.Object = next
	second := Follow(first, doc, "h2")
	if len(first.Revisions) != 1 || len(second.Revisions) != 2 || second.Revisions[0] != first.Revisions[0] || second.Latest().Number != 2 {
		t.Errorf("%+v, %+v", first, second)
	}
}
