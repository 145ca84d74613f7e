package access

import (
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Rule grants permissions to users and groups.
type Rule struct {
	// Users and Groups are the subjects: each named user, and each member of a group.
	Users, Groups []string
	// Verbs are the allowed verbs; "*" allows all.
	Verbs []string
	// Resources are names such as pods, pods/log, pods/*, */scale, deployments.apps or *. A name without an API group matches all groups.
	Resources []string
	// Namespaces limits Resources; if empty, the rule applies to all namespaces and to cluster-scoped objects.
	Namespaces []string
	// Paths are non-resource paths, such as /metrics or /logs/*; "*" matches all.
	Paths []string
	// Source names the rule in reasons; if empty, the matching group or user is named.
	Source string
}

// Permissions that do not correspond to requests. They are written as subresources, and only a rule that names them, or *, grants them.
const (
	// privileged, with the verb create, exempts pods that a user writes from the Pod Security Standard.
	privileged = "privileged"
	// sources, with the verb get, allows reading Secrets that other sources define.
	sources = "sources"
)

// every is the wildcard in rules.
const every = "*"

// ruleset implements Policy by rules: a request that no rule allows is denied.
type ruleset struct {
	rules []Rule
	// namespaces maps namespaces to the roles of their pods.
	namespaces map[string]string
}

// NewPolicy returns the policy of the built-in roles and further rules.
func NewPolicy(rules []Rule) Policy { return NewPolicyWith(rules, nil) }

// NewPolicyWith is NewPolicy with roles for the pods of namespaces, values of manifests.AnnotationAPIAccess. A pod's own annotation takes
// precedence.
func NewPolicyWith(rules []Rule, namespaces map[string]string) Policy {
	return &ruleset{rules: append(builtIn(), rules...), namespaces: namespaces}
}

// Allows implements Policy.
func (p *ruleset) Allows(a Attributes) (allowed bool, reason string) {
	a = a.normal()
	for i := range p.rules {
		r := &p.rules[i]
		if subject := r.subject(a.User); subject != "" && r.permits(&a) {
			if r.Source != "" {
				subject = r.Source
			}
			return true, "allowed by " + subject
		}
	}
	return false, ""
}

// normal returns the attributes in the form that rules use. Exec, attach and portforward require create even with GET, which WebSockets
// use: read permissions must not include them. A Namespace object counts as being in its own namespace, so that permissions in a namespace
// allow reading it.
func (a Attributes) normal() Attributes {
	if a.Resource == "pods" && a.Verb == "get" && slices.Contains([]string{"exec", "attach", "portforward"}, a.Subresource) {
		a.Verb = "create"
	}
	if a.Resource == "namespaces" && a.Group == "" && a.Namespace == "" {
		a.Namespace = a.Name
	}
	return a
}

// subject returns the user or group through which a rule applies to a user; empty if it does not apply.
func (r *Rule) subject(u User) string {
	if u.Name != "" && slices.Contains(r.Users, u.Name) {
		return "user " + u.Name
	}
	for _, g := range r.Groups {
		if slices.Contains(u.Groups, g) {
			return "group " + g
		}
	}
	return ""
}

// permits reports whether a rule includes a request.
func (r *Rule) permits(a *Attributes) bool {
	if !slices.Contains(r.Verbs, every) && !slices.Contains(r.Verbs, a.Verb) {
		return false
	}
	if a.Resource == "" {
		return slices.ContainsFunc(r.Paths, func(p string) bool { return matchesPath(p, a.Path) })
	}
	if len(r.Namespaces) > 0 && !slices.Contains(r.Namespaces, a.Namespace) {
		return false
	}
	return slices.ContainsFunc(r.Resources, func(name string) bool { return matchesResource(name, a) })
}

// matchesPath reports whether a pattern equals a path, or, with a trailing *, is a prefix of it.
func matchesPath(pattern, path string) bool {
	prefix, open := strings.CutSuffix(pattern, every)
	return pattern == path || open && strings.HasPrefix(path, prefix)
}

// matchesResource reports whether the name of a resource in a rule includes that of a request.
func matchesResource(name string, a *Attributes) bool {
	if name == every {
		return true
	}
	resource, group, sub := splitResource(name)
	special := a.Subresource == privileged || a.Subresource == sources
	switch {
	case resource != every && resource != a.Resource, group != "" && group != a.Group:
		return false
	case sub == every:
		return a.Subresource != "" && !special
	}
	return sub == a.Subresource
}

// splitResource splits RESOURCE[.GROUP][/SUBRESOURCE].
func splitResource(name string) (resource, group, sub string) {
	name, sub, _ = strings.Cut(name, "/")
	resource, group, _ = strings.Cut(name, ".")
	return resource, group, sub
}

// Check returns nil if a request is allowed, otherwise a 403 error worded like that of Kubernetes.
func Check(p Policy, a Attributes) error {
	allowed, reason := p.Allows(a)
	if allowed {
		return nil
	}
	if a.Resource == "" {
		err := apierrors.NewForbidden(schema.GroupResource{}, "", nil)
		err.ErrStatus.Message = fmt.Sprintf("forbidden: User %q cannot %s path %q", a.User.Name, a.Verb, a.Path)
		err.ErrStatus.Details = &metav1.StatusDetails{}
		return err
	}
	resource := a.Resource
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	text := fmt.Sprintf("User %q cannot %s resource %q in API group %q", a.User.Name, a.Verb, resource, a.Group)
	if a.Namespace != "" {
		text += fmt.Sprintf(" in the namespace %q", a.Namespace)
	} else {
		text += " at the cluster scope"
	}
	if reason != "" {
		text += ": " + reason
	}
	return forbidden(a.Group, a.Resource, a.Name, text)
}

func forbidden(group, resource, name, text string) error {
	return apierrors.NewForbidden(schema.GroupResource{Group: group, Resource: resource}, name, fmt.Errorf("%s", text))
}
