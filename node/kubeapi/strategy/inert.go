package strategy

import (
	"maps"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"monopod/node/kubeapi/kinds"
)

// defaultInert sets the defaults of kinds that are stored without effect, so that clients read what they would read in a cluster.
func defaultInert(o kinds.Object) {
	switch o := o.(type) {
	case *networkingv1.IngressClass:
		if p := o.Spec.Parameters; p != nil {
			defaultPtr(&p.Scope, networkingv1.IngressClassParametersReferenceScopeCluster)
		}
	case *networkingv1.NetworkPolicy:
		defaultNetworkPolicy(&o.Spec)
	case *rbacv1.RoleBinding:
		defaultBinding(&o.RoleRef, o.Subjects)
	case *rbacv1.ClusterRoleBinding:
		defaultBinding(&o.RoleRef, o.Subjects)
	case *autoscalingv2.HorizontalPodAutoscaler:
		defaultAutoscaler(&o.Spec)
	case *corev1.LimitRange:
		for i := range o.Spec.Limits {
			if item := &o.Spec.Limits[i]; item.Type == corev1.LimitTypeContainer {
				item.Default = missing(item.Default, item.Max)
				item.DefaultRequest = missing(missing(item.DefaultRequest, item.Default), item.Min)
			}
		}
	}
}

// missing returns a list with the resources of another list that it lacks. Neither is modified.
func missing(list, other corev1.ResourceList) corev1.ResourceList {
	all := maps.Clone(other)
	if all == nil {
		all = corev1.ResourceList{}
	}
	maps.Copy(all, list)
	return all
}

func defaultBinding(role *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	defaultTo(&role.APIGroup, rbacv1.GroupName)
	for i := range subjects {
		if s := &subjects[i]; s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind {
			defaultTo(&s.APIGroup, rbacv1.GroupName)
		}
	}
}

func defaultNetworkPolicy(s *networkingv1.NetworkPolicySpec) {
	if len(s.PolicyTypes) == 0 {
		s.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(s.Egress) > 0 {
			s.PolicyTypes = append(s.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
	for i := range s.Ingress {
		defaultPolicyPorts(s.Ingress[i].Ports)
	}
	for i := range s.Egress {
		defaultPolicyPorts(s.Egress[i].Ports)
	}
}

func defaultPolicyPorts(ports []networkingv1.NetworkPolicyPort) {
	for i := range ports {
		defaultPtr(&ports[i].Protocol, corev1.ProtocolTCP)
	}
}

func defaultAutoscaler(s *autoscalingv2.HorizontalPodAutoscalerSpec) {
	const utilization, period = 80, 15
	defaultPtr(&s.MinReplicas, 1)
	if len(s.Metrics) == 0 {
		s.Metrics = []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
			Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(utilization))},
		}}}
	}
	b := s.Behavior
	if b == nil {
		return
	}
	percent := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: period}
	pods := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: period}
	defaultPtr(&b.ScaleUp, autoscalingv2.HPAScalingRules{})
	defaultPtr(&b.ScaleUp.StabilizationWindowSeconds, 0)
	defaultScaling(b.ScaleUp, pods, percent)
	defaultPtr(&b.ScaleDown, autoscalingv2.HPAScalingRules{})
	defaultScaling(b.ScaleDown, percent)
}

func defaultScaling(r *autoscalingv2.HPAScalingRules, policies ...autoscalingv2.HPAScalingPolicy) {
	defaultPtr(&r.SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	if r.Policies == nil {
		r.Policies = policies
	}
}
