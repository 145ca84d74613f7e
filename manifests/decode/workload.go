package decode

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/manifests"
	"monopod/manifests/defaults"
	"monopod/manifests/document"
	"monopod/manifests/explain"
	"monopod/manifests/fates"
	"monopod/manifests/validate"
)

// asReplicaSet turns a valid ReplicationController into the ReplicaSet that it runs as; other objects stay what they are.
func asReplicaSet(obj metav1.Object) metav1.Object {
	rc, ok := obj.(*corev1.ReplicationController)
	if !ok {
		return obj
	}
	return &appsv1.ReplicaSet{
		ObjectMeta: rc.ObjectMeta,
		Spec: appsv1.ReplicaSetSpec{
			Replicas: rc.Spec.Replicas, MinReadySeconds: rc.Spec.MinReadySeconds, Selector: manifests.EqualTo(rc.Spec.Selector), Template: *rc.Spec.Template,
		},
	}
}

// lacks reports whether a field is missing.
func lacks(found []document.Problem, path string) bool {
	return slices.ContainsFunc(found, func(p document.Problem) bool { return p.Path == path && p.Type == field.ErrorTypeRequired })
}

// templateProblems checks the pods that a workload would create, and their number.
func (l *loader) templateProblems(obj metav1.Object, it document.Item) (found, notes []document.Problem) {
	t, _, path := manifests.TemplateOf(obj)
	if t == nil {
		return nil, nil
	}
	token := defuseTokenVolume(&t.Spec)
	grant(l, &t.ObjectMeta, obj.GetNamespace())
	inner := it
	inner.Prefix = it.Path(path.Child("template").String())
	pod := &corev1.Pod{ObjectMeta: *t.ObjectMeta.DeepCopy(), Spec: *t.Spec.DeepCopy()}
	pod.Name, pod.Namespace, pod.GenerateName = obj.GetName()+"-0", obj.GetNamespace(), ""
	if s, ok := obj.(*appsv1.StatefulSet); ok {
		for i := range s.Spec.VolumeClaimTemplates {
			// What becomes of the claims is checked when they are made; here the mounts need something to refer to.
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: s.Spec.VolumeClaimTemplates[i].Name})
		}
	}
	found, notes = fates.Refusals(pod, inner)
	identify(l.author, pod)
	defaults.Pod(pod)
	for _, e := range validate.Pod(pod) {
		if e.Field == "metadata.name" {
			continue // made of the workload's own, which is checked
		}
		if p := fromValidation(e, inner, &pod.Spec); !masked(p.Path, found) && !explain.AlreadyReported(e, p.Path, found) && !explain.Follows(e, &pod.Spec) {
			found = append(found, p)
		}
	}
	found = append(found, l.notHere(l.policy, pod, inner)...)
	for _, e := range validate.Workload(obj, pod.Spec.RestartPolicy) {
		p := fromValidation(e, it, nil)
		if !l.strict && e.Type == field.ErrorTypeInvalid && e.Field == path.Child("template", "metadata", "labels").String() && lacks(found, it.Path(path.Child("selector").String())) {
			continue // a missing selector matches nothing
		}
		found = append(found, p)
	}
	token.drop(&t.Spec)
	return found, append(notes, token.notes(manifests.APIAccess(pod.Annotations), inner)...)
}
