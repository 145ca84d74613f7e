package manifests

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxVolumeFiles is how many files a volume of ConfigMaps, Secrets or fields of the pod may hold, MaxVolumeBytes how large
// they may be together.
const (
	MaxVolumeFiles = 10_000
	MaxVolumeBytes = 32 << 20
)

// MaxPods is how many pods a workload makes at once, at most.
func MaxPods(obj metav1.Object) int {
	n := func(p *int32) int {
		if p == nil {
			return 1
		}
		return int(max(*p, 0))
	}
	job := func(s *batchv1.JobSpec) int {
		if s.Completions == nil {
			return n(s.Parallelism)
		}
		return min(n(s.Parallelism), n(s.Completions))
	}
	switch o := obj.(type) {
	case *appsv1.Deployment:
		return n(o.Spec.Replicas)
	case *appsv1.ReplicaSet:
		return n(o.Spec.Replicas)
	case *appsv1.StatefulSet:
		return n(o.Spec.Replicas)
	case *batchv1.Job:
		return job(&o.Spec)
	case *batchv1.CronJob:
		return job(&o.Spec.JobTemplate.Spec)
	}
	return 1
}
