package kinds

import (
	"slices"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// inertKinds returns the kinds that are stored without effect, and served only if the configuration names them.
func inertKinds() []*Kind {
	core, network, policy, rbac := corev1.SchemeGroupVersion, networkingv1.SchemeGroupVersion, policyv1.SchemeGroupVersion, rbacv1.SchemeGroupVersion
	all := []*Kind{
		{GroupVersionKind: core.WithKind("LimitRange"), Plural: "limitranges", Short: []string{"limits"}, Namespaced: true},
		{GroupVersionKind: core.WithKind("ResourceQuota"), Plural: "resourcequotas", Short: []string{"quota"}, Namespaced: true},
		{
			GroupVersionKind: autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"), Plural: "horizontalpodautoscalers", Short: []string{"hpa"},
			Categories: []string{"all"}, Namespaced: true,
		},
		{GroupVersionKind: network.WithKind("Ingress"), Plural: "ingresses", Short: []string{"ing"}, Namespaced: true},
		{GroupVersionKind: network.WithKind("IngressClass"), Plural: "ingressclasses"},
		{GroupVersionKind: network.WithKind("NetworkPolicy"), Plural: "networkpolicies", Short: []string{"netpol"}, Namespaced: true},
		{GroupVersionKind: policy.WithKind("PodDisruptionBudget"), Plural: "poddisruptionbudgets", Short: []string{"pdb"}, Namespaced: true},
		{GroupVersionKind: rbac.WithKind("ClusterRole"), Plural: "clusterroles"},
		{GroupVersionKind: rbac.WithKind("ClusterRoleBinding"), Plural: "clusterrolebindings"},
		{GroupVersionKind: rbac.WithKind("Role"), Plural: "roles", Namespaced: true},
		{GroupVersionKind: rbac.WithKind("RoleBinding"), Plural: "rolebindings", Namespaced: true},
	}
	for _, k := range all {
		k.Singular, k.Verbs, k.Inert = strings.ToLower(k.Kind), writes, true
	}
	return all
}

// Warning returns the warning for a stored object of an inert kind; empty for other kinds.
func (k *Kind) Warning() string {
	switch {
	case !k.Inert:
		return ""
	case k.Group == rbacv1.GroupName:
		return k.Kind + " has no effect: monopod stores it but does not act on it; apiServer.rules grants permissions"
	}
	return k.Kind + " has no effect: monopod stores it but does not act on it"
}

// Inert returns the names of the inert kinds, sorted.
func Inert() []string {
	var names []string
	for _, k := range All() {
		if k.Inert {
			names = append(names, k.Kind)
		}
	}
	slices.Sort(names)
	return names
}

// Served selects the kinds that an API serves: all except the inert ones, of which it serves only those that were named. The zero value serves
// no inert kinds.
type Served struct{ inert map[string]bool }

// Serve returns a selection with the named inert kinds. Other names are ignored.
func Serve(inert []string) Served {
	s := Served{inert: map[string]bool{}}
	for _, name := range inert {
		s.inert[name] = true
	}
	return s
}

// Has reports whether a kind is served.
func (s Served) Has(k *Kind) bool { return !k.Inert || s.inert[k.Kind] }

// All returns the served kinds in the order of the table.
func (s Served) All() []*Kind {
	return slices.DeleteFunc(slices.Clone(All()), func(k *Kind) bool { return !s.Has(k) })
}

// AnyInert reports whether inert kinds of a group and version are served; an empty version means any group.
func (s Served) AnyInert(gv schema.GroupVersion) bool {
	return slices.ContainsFunc(s.All(), func(k *Kind) bool { return k.Inert && (gv.Version == "" || k.GroupVersion() == gv) })
}

// ByResource returns the kind of a resource, nil if it is not served.
func (s Served) ByResource(r schema.GroupVersionResource) *Kind { return s.only(ByResource(r)) }

// ByKind returns the kind with this GroupVersionKind, nil if it is not served.
func (s Served) ByKind(k schema.GroupVersionKind) *Kind { return s.only(ByKind(k)) }

func (s Served) only(k *Kind) *Kind {
	if k == nil || !s.Has(k) {
		return nil
	}
	return k
}

// GroupVersions returns the served groups and versions, in the order of All.
func (s Served) GroupVersions() []schema.GroupVersion {
	var found []schema.GroupVersion
	for _, k := range s.All() {
		if !slices.Contains(found, k.GroupVersion()) {
			found = append(found, k.GroupVersion())
		}
	}
	return found
}
