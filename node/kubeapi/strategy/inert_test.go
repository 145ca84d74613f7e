package strategy

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"

	"monopod/node/kubeapi/kinds"
)

// TestDefaultsOfInertKinds: those of k8s.io/kubernetes/pkg/apis/{rbac,networking,autoscaling,core}.
func TestDefaultsOfInertKinds(t *testing.T) {
	t.Parallel()
	rbac, scaling := "rbac.authorization.k8s.io/v1 ", "autoscaling/v2 HorizontalPodAutoscaler"
	cpu := "minReplicas: 1, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]"
	for _, c := range []struct{ kind, given, want string }{
		{
			rbac + "RoleBinding", "roleRef: {kind: Role, name: r}, subjects: [{kind: User, name: u}, {kind: Group, name: g}, {kind: ServiceAccount, name: s}]",
			"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}, subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: u}, " +
				"{kind: Group, apiGroup: rbac.authorization.k8s.io, name: g}, {kind: ServiceAccount, name: s}]",
		},
		{rbac + "ClusterRoleBinding", "roleRef: {kind: ClusterRole, name: r}", "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: r}"},
		{rbac + "Role", "rules: [{verbs: [get]}]", "rules: [{verbs: [get]}]"},
		{
			"networking.k8s.io/v1 NetworkPolicy", "spec: {ingress: [{ports: [{port: 80}]}]}",
			"spec: {policyTypes: [Ingress], ingress: [{ports: [{port: 80, protocol: TCP}]}]}",
		},
		{
			"networking.k8s.io/v1 NetworkPolicy", "spec: {egress: [{ports: [{port: 53, protocol: UDP}, {port: 53}]}]}",
			"spec: {policyTypes: [Ingress, Egress], egress: [{ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]}]}",
		},
		{"networking.k8s.io/v1 NetworkPolicy", "spec: {policyTypes: [Egress]}", "spec: {policyTypes: [Egress]}"},
		{
			"networking.k8s.io/v1 IngressClass", "spec: {controller: c, parameters: {kind: K, name: p}}",
			"spec: {controller: c, parameters: {kind: K, name: p, scope: Cluster}}",
		},
		{"networking.k8s.io/v1 IngressClass", "spec: {controller: c}", "spec: {controller: c}"},
		{scaling, "spec: {maxReplicas: 3}", "spec: {maxReplicas: 3, " + cpu + "}"},
		{
			scaling, "spec: {maxReplicas: 3, behavior: {scaleDown: {stabilizationWindowSeconds: 60}}}",
			"spec: {maxReplicas: 3, " + cpu + ", behavior: {scaleDown: {stabilizationWindowSeconds: 60, selectPolicy: Max, policies: [{type: Percent, value: 100, periodSeconds: 15}]}, " +
				"scaleUp: {stabilizationWindowSeconds: 0, selectPolicy: Max, policies: [{type: Pods, value: 4, periodSeconds: 15}, {type: Percent, value: 100, periodSeconds: 15}]}}}",
		},
		{
			"v1 LimitRange", "spec: {limits: [{type: Container, max: {cpu: 2}, min: {memory: 1Mi}}, {type: Pod, max: {cpu: 4}}]}",
			"spec: {limits: [{type: Container, max: {cpu: 2}, min: {memory: 1Mi}, default: {cpu: 2}, defaultRequest: {cpu: 2, memory: 1Mi}}, {type: Pod, max: {cpu: 4}}]}",
		},
	} {
		got, want := object(t, c.kind, c.given), object(t, c.kind, c.want)
		k := kindOf(t, got)
		for range 2 { // they are idempotent
			Default(k, got)
			if !equality.Semantic.DeepEqual(got, want) {
				t.Errorf("%s: %+v, want %+v", c.kind, got, want)
			}
		}
	}
}

func TestInertKindsThatCountChanges(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]int64{
		"Ingress": 1, "IngressClass": 1, "NetworkPolicy": 1, "PodDisruptionBudget": 1, "Role": 0, "ClusterRoleBinding": 0, "ResourceQuota": 0, "HorizontalPodAutoscaler": 0,
	} {
		var k *kinds.Kind
		for _, one := range kinds.All() {
			if one.Kind == kind {
				k = one
			}
		}
		o := k.New()
		o.SetName("x")
		if err := Create(k, o, NewMetadata{Namespace: "a"}); err != nil || o.GetGeneration() != want {
			t.Errorf("%s: %d, %v", kind, o.GetGeneration(), err)
		}
	}
}
