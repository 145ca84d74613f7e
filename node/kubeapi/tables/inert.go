package tables

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/node/kubeapi/kinds"
)

// inert adds the kinds that are stored without effect. They have no status, so that what a controller would report is empty or unknown.
func inert(all map[schema.GroupVersionKind]*table) {
	v1, rbac := corev1.SchemeGroupVersion, rbacv1.SchemeGroupVersion
	plain := show("Name,Created At", func(o kinds.Object, _ time.Time) []any {
		return []any{o.GetName(), o.GetCreationTimestamp().UTC().Format(time.RFC3339)}
	})
	all[v1.WithKind("LimitRange")], all[rbac.WithKind("Role")], all[rbac.WithKind("ClusterRole")] = plain, plain, plain
	all[v1.WithKind("ResourceQuota")] = show("Name,Request,Limit,Age", func(o *corev1.ResourceQuota, now time.Time) []any {
		return []any{o.Name, "", "", created(o, now)}
	})
	const bindings = "Name,Role,Age,*Users,*Groups,*ServiceAccounts"
	all[rbac.WithKind("RoleBinding")] = show(bindings, func(o *rbacv1.RoleBinding, now time.Time) []any {
		return append([]any{o.Name, o.RoleRef.Kind + "/" + o.RoleRef.Name, created(o, now)}, subjects(o.Subjects)...)
	})
	all[rbac.WithKind("ClusterRoleBinding")] = show(bindings, func(o *rbacv1.ClusterRoleBinding, now time.Time) []any {
		return append([]any{o.Name, o.RoleRef.Kind + "/" + o.RoleRef.Name, created(o, now)}, subjects(o.Subjects)...)
	})
	all[policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget")] = show("Name,Min Available,Max Unavailable,#Allowed Disruptions,Age",
		func(o *policyv1.PodDisruptionBudget, now time.Time) []any {
			return []any{o.Name, share(o.Spec.MinAvailable), share(o.Spec.MaxUnavailable), int64(o.Status.DisruptionsAllowed), created(o, now)}
		})
	all[autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler")] = show("Name,Reference,Targets,MinPods,MaxPods,Replicas,Age", autoscalerRow)
	network := networkingv1.SchemeGroupVersion
	all[network.WithKind("NetworkPolicy")] = show("Name,Pod-Selector,Age", func(o *networkingv1.NetworkPolicy, now time.Time) []any {
		return []any{o.Name, metav1.FormatLabelSelector(&o.Spec.PodSelector), created(o, now)}
	})
	all[network.WithKind("IngressClass")] = show("Name,Controller,Parameters,Age", ingressClassRow)
	all[network.WithKind("Ingress")] = show("Name,Class,Hosts,Address,Ports,Age", func(o *networkingv1.Ingress, now time.Time) []any {
		ports := "80"
		if len(o.Spec.TLS) > 0 {
			ports = "80, 443"
		}
		return []any{o.Name, text(o.Spec.IngressClassName, none), hosts(o.Spec.Rules), "", ports, created(o, now)}
	})
}

// subjects returns the names of users, groups and ServiceAccounts.
func subjects(all []rbacv1.Subject) []any {
	var users, groups, accounts []string
	for _, s := range all {
		switch s.Kind {
		case rbacv1.UserKind:
			users = append(users, s.Name)
		case rbacv1.GroupKind:
			groups = append(groups, s.Name)
		case rbacv1.ServiceAccountKind:
			accounts = append(accounts, s.Namespace+"/"+s.Name)
		}
	}
	return []any{strings.Join(users, ", "), strings.Join(groups, ", "), strings.Join(accounts, ", ")}
}

// share returns a number or percentage of pods.
func share(value *intstr.IntOrString) string {
	if value == nil {
		return "N/A"
	}
	return value.String()
}

func hosts(rules []networkingv1.IngressRule) string {
	var list []string
	more := false
	for _, rule := range rules {
		more = more || len(list) == shortList
		if !more && rule.Host != "" {
			list = append(list, rule.Host)
		}
	}
	switch {
	case len(list) == 0:
		return "*"
	case more:
		return fmt.Sprintf("%s + %d more...", strings.Join(list, ","), len(rules)-shortList)
	}
	return strings.Join(list, ",")
}

func ingressClassRow(o *networkingv1.IngressClass, now time.Time) []any {
	name, parameters := o.Name, none
	if o.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true" {
		name += " (default)"
	}
	if p := o.Spec.Parameters; p != nil {
		parameters = p.Kind
		if p.APIGroup != nil {
			parameters += "." + *p.APIGroup
		}
		parameters += "/" + p.Name
	}
	return []any{name, o.Spec.Controller, parameters, created(o, now)}
}

func autoscalerRow(o *autoscalingv2.HorizontalPodAutoscaler, now time.Time) []any {
	minimum := unset
	if n := o.Spec.MinReplicas; n != nil {
		minimum = strconv.Itoa(int(*n))
	}
	target := o.Spec.ScaleTargetRef
	return []any{o.Name, target.Kind + "/" + target.Name, targets(o.Spec.Metrics), minimum, int64(o.Spec.MaxReplicas), int64(0), created(o, now)}
}

// targets returns the targets of metrics, whose current values are unknown.
func targets(metrics []autoscalingv2.MetricSpec) string {
	const most = 2
	var list []string
	for i := range metrics {
		m := &metrics[i]
		switch {
		case m.Resource != nil:
			list = append(list, string(m.Resource.Name)+": "+unknown+"/"+goal(&m.Resource.Target, false))
		case m.ContainerResource != nil:
			list = append(list, string(m.ContainerResource.Name)+": "+unknown+"/"+goal(&m.ContainerResource.Target, false))
		case m.Pods != nil:
			list = append(list, unknown+"/"+goal(&m.Pods.Target, false))
		case m.Object != nil:
			list = append(list, unknown+"/"+goal(&m.Object.Target, true))
		case m.External != nil:
			list = append(list, unknown+"/"+goal(&m.External.Target, true))
		default:
			list = append(list, "<unknown type>")
		}
	}
	if len(list) > most {
		return fmt.Sprintf("%s + %d more...", strings.Join(list[:most], ", "), len(list)-most)
	}
	if len(list) == 0 {
		return none
	}
	return strings.Join(list, ", ")
}

// goal returns a target value; mark marks averages.
func goal(t *autoscalingv2.MetricTarget, mark bool) string {
	switch {
	case t.AverageValue != nil && mark:
		return t.AverageValue.String() + " (avg)"
	case t.AverageValue != nil:
		return t.AverageValue.String()
	case t.AverageUtilization != nil:
		return strconv.Itoa(int(*t.AverageUtilization)) + "%"
	case t.Value != nil:
		return t.Value.String()
	}
	return "<auto>"
}
