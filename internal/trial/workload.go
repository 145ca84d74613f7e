package trial

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
)

// controller is what the pod was made for.
func controller(pod *corev1.Pod) (kind, name string) {
	if o := metav1.GetControllerOf(pod); o != nil {
		return o.Kind, o.Name
	}
	return "", ""
}

// workload judges a workload by its pods. What comes and goes with the time, as CronJobs do, is not waited for.
func workload(w *manifests.Object, pods []Pod, jobs map[string]string) Workload {
	out := Workload{Kind: w.Kind, Namespace: w.Object.GetNamespace(), Name: w.Object.GetName(), Result: Waiting}
	switch o := w.Object.(type) {
	case *batchv1.Job:
		switch jobs[out.Namespace+"/"+out.Name] {
		case "Complete":
			out.Result = OK
		case "Failed":
			out.Result, out.Reason = Failed, "the Job has failed"+out.blamed(pods)
		default:
			out.Reason = "the Job has not finished"
			if o.Spec.Suspend != nil && *o.Spec.Suspend {
				out.Result, out.Reason = OK, "suspended"
			}
		}
		return out
	case *appsv1.Deployment:
		out.wants(o.Spec.Replicas, pods)
	case *appsv1.ReplicaSet:
		out.wants(o.Spec.Replicas, pods)
	case *appsv1.StatefulSet:
		out.wants(o.Spec.Replicas, pods)
	case *appsv1.DaemonSet:
		out.wants(nil, pods)
	default:
		return Workload{}
	}
	return out
}

func (w *Workload) owns(p Pod) bool {
	return p.Owner == w.Kind+"/"+w.Name && p.Namespace == w.Namespace
}

// blamed names the last pod of the workload that has failed, and its reason, as the end of a sentence; empty: there is none.
func (w *Workload) blamed(pods []Pod) string {
	for _, p := range slices.Backward(pods) {
		if w.owns(p) && p.Result == Failed {
			return ": pod " + p.Name + ": " + p.Reason
		}
	}
	return ""
}

// wants compares the pods there are with their number.
func (w *Workload) wants(replicas *int32, pods []Pod) {
	want, good := 1, 0
	if replicas != nil {
		want = int(*replicas)
	}
	for _, p := range pods {
		if !w.owns(p) {
			continue
		}
		switch p.Result {
		case OK:
			good++
		case Failed:
			w.Result = Failed
		}
	}
	switch {
	case w.Result == Failed:
		w.Reason = "a pod of it has failed" + w.blamed(pods)
	case good >= want:
		w.Result = OK
	default:
		w.Reason = fmt.Sprintf("%d of %d pods are up", good, want)
	}
}
