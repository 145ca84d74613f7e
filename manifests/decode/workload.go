package decode

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// templateProblems checks the pods that a workload would create, and their number.
func (l *loader) templateProblems(obj metav1.Object, it document.Item) (found, notes []document.Problem) {
	t, _, path := manifests.TemplateOf(obj)
	if t == nil {
		return nil, nil
	}
	token := defuseTokenVolume(&t.Spec)
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
	defaults.Pod(pod)
	for _, e := range validate.Pod(pod) {
		if e.Field == "metadata.name" {
			continue // made of the workload's own, which is checked
		}
		if p := fromValidation(e, inner, &pod.Spec); !masked(p.Path, found) && !explain.AlreadyReported(e, p.Path, found) {
			found = append(found, p)
		}
	}
	found = append(found, l.notHere(pod, inner)...)
	for _, e := range validate.Workload(obj, pod.Spec.RestartPolicy) {
		found = append(found, fromValidation(e, it, nil))
	}
	token.drop(&t.Spec)
	return found, append(notes, token.notes(inner)...)
}
