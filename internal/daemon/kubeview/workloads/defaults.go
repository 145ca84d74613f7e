package workloads

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/manifests/defaults"
)

// orPointer sets a field that is nil.
func orPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// DefaultTemplate sets the defaults of a pod template, on a copy.
func DefaultTemplate(t *corev1.PodTemplateSpec) {
	t.Spec = *t.Spec.DeepCopy()
	defaults.Template(&t.Spec)
}

// DefaultDeployment sets the defaults of Kubernetes on a shallow copy.
func DefaultDeployment(d *appsv1.Deployment) {
	DefaultTemplate(&d.Spec.Template)
	orPointer(&d.Spec.Replicas, 1)
	orPointer(&d.Spec.RevisionHistoryLimit, 10)
	orPointer(&d.Spec.ProgressDeadlineSeconds, 600)
	if d.Spec.Strategy.Type == "" {
		d.Spec.Strategy.Type = appsv1.RollingUpdateDeploymentStrategyType
	}
	if d.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		r := appsv1.RollingUpdateDeployment{}
		if d.Spec.Strategy.RollingUpdate != nil {
			r = *d.Spec.Strategy.RollingUpdate
		}
		orPointer(&r.MaxSurge, intstr.FromString("25%"))
		orPointer(&r.MaxUnavailable, intstr.FromString("25%"))
		d.Spec.Strategy.RollingUpdate = &r
	}
}

// DefaultReplicaSet sets the defaults of Kubernetes on a shallow copy.
func DefaultReplicaSet(s *appsv1.ReplicaSet) {
	DefaultTemplate(&s.Spec.Template)
	orPointer(&s.Spec.Replicas, 1)
}

// DefaultStatefulSet sets the defaults of Kubernetes on a shallow copy.
func DefaultStatefulSet(s *appsv1.StatefulSet) {
	DefaultTemplate(&s.Spec.Template)
	orPointer(&s.Spec.Replicas, 1)
	orPointer(&s.Spec.RevisionHistoryLimit, 10)
	if s.Spec.PodManagementPolicy == "" {
		s.Spec.PodManagementPolicy = appsv1.OrderedReadyPodManagement
	}
	if s.Spec.UpdateStrategy.Type == "" {
		s.Spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
	}
	if s.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType && s.Spec.UpdateStrategy.RollingUpdate == nil {
		s.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32)}
	}
	orPointer(&s.Spec.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
		WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
	})
}

// DefaultDaemonSet sets the defaults of Kubernetes on a shallow copy.
func DefaultDaemonSet(d *appsv1.DaemonSet) {
	DefaultTemplate(&d.Spec.Template)
	orPointer(&d.Spec.RevisionHistoryLimit, 10)
	if d.Spec.UpdateStrategy.Type == "" {
		d.Spec.UpdateStrategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
	}
	if d.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType && d.Spec.UpdateStrategy.RollingUpdate == nil {
		surge, missing := intstr.FromInt32(0), intstr.FromInt32(1)
		d.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxSurge: &surge, MaxUnavailable: &missing}
	}
}

// DefaultJob sets the defaults of Kubernetes on a shallow copy.
func DefaultJob(s *batchv1.JobSpec) {
	DefaultTemplate(&s.Template)
	if s.Completions == nil && s.Parallelism == nil {
		s.Completions = new(int32(1))
	}
	orPointer(&s.Parallelism, 1)
	orPointer(&s.BackoffLimit, 6)
	orPointer(&s.CompletionMode, batchv1.NonIndexedCompletion)
	orPointer(&s.Suspend, false)
	orPointer(&s.PodReplacementPolicy, batchv1.TerminatingOrFailed)
}

// DefaultCronJob sets the defaults of Kubernetes on a shallow copy.
func DefaultCronJob(c *batchv1.CronJob) {
	DefaultTemplate(&c.Spec.JobTemplate.Spec.Template)
	if c.Spec.ConcurrencyPolicy == "" {
		c.Spec.ConcurrencyPolicy = batchv1.AllowConcurrent
	}
	orPointer(&c.Spec.Suspend, false)
	orPointer(&c.Spec.SuccessfulJobsHistoryLimit, 3)
	orPointer(&c.Spec.FailedJobsHistoryLimit, 1)
}
