package access

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"monopod/manifests"
	"monopod/node/kubeapi/kinds"
)

// Groups of service accounts; the group of a namespace has a colon and the namespace appended.
const (
	GroupAccounts = "system:serviceaccounts"
	accountPrefix = "system:serviceaccount:"
)

// Account returns the user of a service account, with the role (manifests.APIAccess) of the pod that uses its token; an empty role grants
// nothing.
func Account(namespace, name, role string) User {
	u := User{Name: accountPrefix + namespace + ":" + name, Groups: []string{GroupAccounts, GroupAccounts + ":" + namespace}}
	if group := GroupOf(role); group != "" {
		u.Groups = append(u.Groups, group)
	}
	return u
}

// AudienceAuthenticator verifies bearer tokens that are restricted to certain audiences.
type AudienceAuthenticator interface {
	TokenAuthenticator
	// AuthenticateFor is AuthenticateToken for any of these audiences; common are those that the token is valid for.
	AuthenticateFor(ctx context.Context, token string, audiences []string) (u User, common []string, ok bool, err error)
}

// Covers reports whether a user has all permissions of another user.
func Covers(p Policy, u, other User) bool {
	rules, ok := p.(*ruleset)
	if !ok {
		allowed, _ := p.Allows(Attributes{User: u, Verb: every, Resource: every})
		return allowed
	}
	return !slices.ContainsFunc(rules.rules, func(r Rule) bool { return r.subject(other) != "" && !rules.covers(u, &r) })
}

// covers reports whether a user has the permissions of a rule.
func (p *ruleset) covers(u User, r *Rule) bool {
	namespaces := r.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{""} // permissions in namespaces do not include it
	}
	for _, verb := range r.Verbs {
		for _, name := range r.Resources {
			resource, group, sub := splitResource(name)
			for _, ns := range namespaces {
				if ok, _ := p.Allows(Attributes{User: u, Verb: verb, Group: group, Resource: resource, Subresource: sub, Namespace: ns}); !ok {
					return false
				}
			}
		}
		for _, path := range r.Paths {
			if ok, _ := p.Allows(Attributes{User: u, Verb: verb, Path: path}); !ok {
				return false
			}
		}
	}
	return true
}

// AdmitAccess returns why a user may not write a pod that uses the API, run commands in it, or get its token: the pod has permissions that
// the user lacks.
func AdmitAccess(u User, p Policy, verb string, o kinds.Object) error {
	meta, spec := podOf(o)
	if spec == nil {
		return nil
	}
	name := spec.ServiceAccountName
	if name == "" {
		name = "default"
	}
	roles := []string{manifests.APIAccess(meta.Annotations)}
	if set, ok := p.(*ruleset); ok && meta.Annotations[manifests.AnnotationAPIAccess] == "" {
		roles = append(roles, set.namespaces[o.GetNamespace()]) // a client may have set a different one
	}
	at := slices.IndexFunc(roles, func(role string) bool { return role != "" && !Covers(p, u, Account(o.GetNamespace(), name, role)) })
	if at < 0 {
		return nil
	}
	role := roles[at]
	resource := resourceOf(o)
	return forbidden(resource.Group, resource.Resource, o.GetName(), fmt.Sprintf(
		"annotation %s=%s gives the pod permissions that User %q lacks; to %s it, use the role admin or get all of these permissions", manifests.AnnotationAPIAccess, role, u.Name, verb,
	))
}

// CheckNamespaces validates namespace roles for NewPolicyWith; it returns one line per problem.
func CheckNamespaces(roles map[string]string) error {
	var found []error
	for _, ns := range slices.Sorted(maps.Keys(roles)) {
		if problems := validation.IsDNS1123Label(ns); len(problems) > 0 {
			found = append(found, fmt.Errorf("%q is not a namespace: %s", ns, problems[0]))
		}
		if v := roles[ns]; !slices.Contains(manifests.APIAccesses(), v) {
			found = append(found, fmt.Errorf("%s: %q is none of %s", ns, v, strings.Join(manifests.APIAccesses(), ", ")))
		}
	}
	return errors.Join(found...)
}

// podOf returns the metadata and the spec of a pod, or of the pods that a workload creates; nil for other kinds.
func podOf(o kinds.Object) (*metav1.ObjectMeta, *corev1.PodSpec) {
	if pod, ok := o.(*corev1.Pod); ok {
		return &pod.ObjectMeta, &pod.Spec
	}
	if t, _, _ := manifests.TemplateOf(o); t != nil {
		return &t.ObjectMeta, &t.Spec
	}
	return nil, nil
}

// Union tries several TokenAuthenticators in order.
type Union []TokenAuthenticator

// AuthenticateToken implements Tokens.
func (c Union) AuthenticateToken(ctx context.Context, token string) (u User, ok bool, err error) {
	u, _, ok, err = c.AuthenticateFor(ctx, token, []string{Audience})
	return u, ok, err
}

// AuthenticateFor implements AudienceTokens. Tokens without audiences are valid for this API only.
func (c Union) AuthenticateFor(ctx context.Context, token string, audiences []string) (u User, common []string, ok bool, err error) {
	var errs []error
	for _, one := range c {
		if t, some := one.(AudienceAuthenticator); some {
			u, common, ok, err = t.AuthenticateFor(ctx, token, audiences)
		} else if common = nil; slices.Contains(audiences, Audience) {
			u, ok, err = one.AuthenticateToken(ctx, token)
			common = []string{Audience}
		} else {
			ok, err = false, nil
		}
		if ok && err == nil {
			return u, common, true, nil
		}
		errs = append(errs, err)
	}
	return User{}, nil, false, errors.Join(errs...)
}
