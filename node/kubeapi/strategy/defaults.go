package strategy

import (
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/manifests/defaults"
	"monopod/node/kubeapi/kinds"
)

// Default sets the defaults of kube-apiserver. It is idempotent.
func Default(k *kinds.Kind, o kinds.Object) {
	defaults.Object(o, !k.Namespaced)
	switch o := o.(type) {
	case *corev1.Pod:
		defaults.Pod(o)
	case *corev1.Namespace:
		defaultNamespace(o)
	case *corev1.Service:
		defaultService(&o.Spec)
	case *appsv1.Deployment:
		defaultDeployment(&o.Spec)
	case *appsv1.StatefulSet:
		defaultStatefulSet(&o.Spec)
	case *appsv1.DaemonSet:
		defaultDaemonSet(&o.Spec)
	case *appsv1.ReplicaSet:
		defaultPtr(&o.Spec.Replicas, 1)
		template(&o.Spec.Template, corev1.RestartPolicyAlways)
	case *batchv1.Job:
		defaultJob(&o.Spec)
	case *batchv1.CronJob:
		defaultCronJob(&o.Spec)
	case *schedulingv1.PriorityClass:
		defaultPtr(&o.PreemptionPolicy, corev1.PreemptLowerPriority)
	case *storagev1.StorageClass:
		defaultPtr(&o.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
		defaultPtr(&o.VolumeBindingMode, storagev1.VolumeBindingImmediate)
	case *networkingv1.IngressClass, *networkingv1.NetworkPolicy, *rbacv1.RoleBinding, *rbacv1.ClusterRoleBinding,
		*autoscalingv2.HorizontalPodAutoscaler, *corev1.LimitRange:
		defaultInert(o)
	case *corev1.PersistentVolumeClaim:
		defaultTo(&o.Status.Phase, corev1.ClaimPending)
	case *corev1.PersistentVolume:
		defaultTo(&o.Status.Phase, corev1.VolumePending)
	}
}

// defaultPtr sets an optional field if it is nil; defaultTo sets a field if it has its zero value.
func defaultPtr[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func defaultTo[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// template sets the defaults of a pod template. The restart policy is empty for Jobs, which have no valid default.
func template(t *corev1.PodTemplateSpec, restart corev1.RestartPolicy) {
	given := t.Spec.RestartPolicy
	defaults.Template(&t.Spec)
	if t.Spec.RestartPolicy = given; given == "" {
		t.Spec.RestartPolicy = restart
	}
}

func defaultNamespace(n *corev1.Namespace) {
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	if n.Name != "" {
		n.Labels[corev1.LabelMetadataName] = n.Name
	}
	if len(n.Spec.Finalizers) == 0 {
		n.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes}
	}
	defaultTo(&n.Status.Phase, corev1.NamespaceActive)
}

func defaultService(s *corev1.ServiceSpec) {
	defaultTo(&s.Type, corev1.ServiceTypeClusterIP)
	defaultTo(&s.SessionAffinity, corev1.ServiceAffinityNone)
	if s.SessionAffinity == corev1.ServiceAffinityClientIP {
		defaultPtr(&s.SessionAffinityConfig, corev1.SessionAffinityConfig{})
		defaultPtr(&s.SessionAffinityConfig.ClientIP, corev1.ClientIPConfig{})
		defaultPtr(&s.SessionAffinityConfig.ClientIP.TimeoutSeconds, corev1.DefaultClientIPServiceAffinitySeconds)
	}
	for i := range s.Ports {
		p := &s.Ports[i]
		defaultTo(&p.Protocol, corev1.ProtocolTCP)
		if p.TargetPort == (intstr.IntOrString{}) || p.TargetPort == intstr.FromString("") {
			p.TargetPort = intstr.FromInt32(p.Port)
		}
	}
	if s.Type == corev1.ServiceTypeExternalName {
		return
	}
	defaultPtr(&s.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
	if s.Type == corev1.ServiceTypeNodePort || s.Type == corev1.ServiceTypeLoadBalancer {
		defaultTo(&s.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if s.Type == corev1.ServiceTypeLoadBalancer {
		defaultPtr(&s.AllocateLoadBalancerNodePorts, true)
	}
}

func defaultDeployment(s *appsv1.DeploymentSpec) {
	defaultPtr(&s.Replicas, 1)
	defaultPtr(&s.RevisionHistoryLimit, 10)
	defaultPtr(&s.ProgressDeadlineSeconds, 600)
	defaultTo(&s.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if s.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		defaultPtr(&s.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
		defaultPtr(&s.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		defaultPtr(&s.Strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
	template(&s.Template, corev1.RestartPolicyAlways)
}

func defaultStatefulSet(s *appsv1.StatefulSetSpec) {
	defaultPtr(&s.Replicas, 1)
	defaultPtr(&s.RevisionHistoryLimit, 10)
	defaultTo(&s.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	defaultTo(&s.UpdateStrategy.Type, appsv1.RollingUpdateStatefulSetStrategyType)
	if s.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
		defaultPtr(&s.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
		defaultPtr(&s.UpdateStrategy.RollingUpdate.Partition, 0)
		defaultPtr(&s.UpdateStrategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
	}
	defaultPtr(&s.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	defaultTo(&s.PersistentVolumeClaimRetentionPolicy.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	defaultTo(&s.PersistentVolumeClaimRetentionPolicy.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	for i := range s.VolumeClaimTemplates {
		c := &s.VolumeClaimTemplates[i]
		c.APIVersion, c.Kind = "v1", "PersistentVolumeClaim"
		defaultTo(&c.Status.Phase, corev1.ClaimPending)
	}
	template(&s.Template, corev1.RestartPolicyAlways)
}

func defaultDaemonSet(s *appsv1.DaemonSetSpec) {
	defaultPtr(&s.RevisionHistoryLimit, 10)
	defaultTo(&s.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if s.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		defaultPtr(&s.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		defaultPtr(&s.UpdateStrategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		defaultPtr(&s.UpdateStrategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
	template(&s.Template, corev1.RestartPolicyAlways)
}

func defaultJob(s *batchv1.JobSpec) {
	if s.Completions == nil && s.Parallelism == nil {
		defaultPtr(&s.Completions, 1)
	}
	defaultPtr(&s.Parallelism, 1)
	if s.BackoffLimitPerIndex == nil {
		defaultPtr(&s.BackoffLimit, 6)
	}
	defaultPtr(&s.CompletionMode, batchv1.NonIndexedCompletion)
	defaultPtr(&s.Suspend, false)
	defaultPtr(&s.ManualSelector, false)
	if s.PodFailurePolicy != nil {
		defaultPtr(&s.PodReplacementPolicy, batchv1.Failed)
	}
	defaultPtr(&s.PodReplacementPolicy, batchv1.TerminatingOrFailed)
	template(&s.Template, "")
}

func defaultCronJob(s *batchv1.CronJobSpec) {
	defaultTo(&s.ConcurrencyPolicy, batchv1.AllowConcurrent)
	defaultPtr(&s.Suspend, false)
	defaultPtr(&s.SuccessfulJobsHistoryLimit, 3)
	defaultPtr(&s.FailedJobsHistoryLimit, 1)
	template(&s.JobTemplate.Spec.Template, "")
}
