package access

import "slices"

// Roles that rules and kubeconfigs may name.
const (
	RoleAdmin = "admin"
	RoleEdit  = "edit"
	RoleView  = "view"
)

// Roles returns the names of the roles, the weakest first.
func Roles() []string { return []string{RoleView, RoleEdit, RoleAdmin} }

// GroupOf returns the group whose members have a role on the whole machine; empty for an unknown role.
func GroupOf(role string) string {
	switch role {
	case RoleAdmin:
		return GroupAdmin
	case RoleEdit:
		return GroupEdit
	case RoleView:
		return GroupView
	}
	return ""
}

func readVerbs() []string { return []string{"get", "list", "watch"} }

func writeVerbs() []string {
	return []string{"create", "update", "patch", "delete", "deletecollection"}
}

// editable lists the resources that edit may write and view may read.
func editable() []string {
	return []string{
		"configmaps", "cronjobs", "daemonsets", "deployments", "events", "jobs", "leases", "namespaces", "persistentvolumeclaims",
		"persistentvolumes", "pods", "priorityclasses", "replicasets", "revisions", "runtimeclasses", "serviceaccounts", "services", "statefulsets",
		"storageclasses",
		// Kinds without effect: roles and their bindings grant nothing.
		"horizontalpodautoscalers", "ingressclasses", "ingresses", "limitranges", "networkpolicies", "poddisruptionbudgets", "resourcequotas",
		"rolebindings", "roles",
	}
}

// readable lists the other resources that view may read. Secrets are not among them.
func readable() []string {
	return []string{
		"agents", "clusterrolebindings", "clusterroles", "controllerrevisions", "endpoints", "endpointslices", "images", "nodes", "podreports", "replicationcontrollers", "sources",
	}
}

// rightsOf returns the permissions of a role, without subjects and namespaces. Edit may not create tokens, review the access of other
// users, write nodes, or create privileged pods, which would imply all other permissions.
func rightsOf(role string) []Rule {
	view := []Rule{
		{Verbs: readVerbs(), Resources: slices.Concat(editable(), readable())},
		{Verbs: []string{"get"}, Resources: []string{"agents/*", "podreports/history", "podreports/why", "pods/log", "pods/ephemeralcontainers", "pods/resize", "*/scale", "*/status"}},
	}
	switch role {
	case RoleView:
		return view
	case RoleEdit:
		statuses := make([]string, 0, len(editable()))
		for _, name := range editable() {
			statuses = append(statuses, name+"/status")
		}
		return append(
			view,
			Rule{Verbs: readVerbs(), Resources: []string{"secrets"}},
			Rule{Verbs: writeVerbs(), Resources: slices.Concat(editable(), []string{"secrets", "pods/proxy", "services/proxy"})},
			Rule{Verbs: []string{"get"}, Resources: []string{"pods/proxy", "services/proxy"}},
			Rule{Verbs: []string{"create"}, Resources: []string{"podreports/rollback", "pods/attach", "pods/binding", "pods/eviction", "pods/exec", "pods/portforward"}},
			Rule{Verbs: []string{"update", "patch"}, Resources: slices.Concat(statuses, []string{"*/scale", "pods/ephemeralcontainers", "pods/resize"})},
		)
	case RoleAdmin:
		return []Rule{{Verbs: []string{every}, Resources: []string{every}}}
	}
	return nil
}

// builtIn returns the rules that always apply.
func builtIn() []Rule {
	health := []string{"/version", "/version/", "/healthz", "/healthz/*", "/livez", "/livez/*", "/readyz", "/readyz/*"}
	documents := []string{"/", "/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", "/.well-known/openid-configuration", "/openid/v1/jwks"}
	rules := []Rule{
		{Groups: []string{GroupMasters, GroupAdmin}, Verbs: []string{every}, Resources: []string{every}, Paths: []string{every}},
		{
			Groups: []string{GroupAuthenticated}, Verbs: []string{"create"},
			Resources: []string{"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"},
		},
		{Groups: []string{GroupAuthenticated}, Verbs: []string{"get", "head"}, Paths: documents},
		{Groups: []string{GroupAuthenticated, GroupUnauthenticated}, Verbs: []string{"get", "head"}, Paths: health},
	}
	for _, role := range []string{RoleEdit, RoleView} {
		for _, r := range rightsOf(role) {
			r.Groups = []string{GroupOf(role)}
			rules = append(rules, r)
		}
	}
	return rules
}
