package access

import (
	"context"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/node/kubeapi/kinds"
)

// TokenAuthenticator verifies bearer tokens for TokenReview.
type TokenAuthenticator interface {
	// AuthenticateToken returns the user of a token; ok is false for an unknown token.
	AuthenticateToken(ctx context.Context, token string) (u User, ok bool, err error)
}

// Audience is the audience of this API, used for tokens that name none.
const Audience = "https://kubernetes.default.svc"

// Reviewer answers reviews.
type Reviewer struct {
	Policy Policy
	// Tokens verifies the tokens of TokenReviews; with nil, all tokens are unknown.
	Tokens TokenAuthenticator
}

// Review answers a review of a user: SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview, LocalSubjectAccessReview,
// SelfSubjectReview or TokenReview. namespace is the namespace of the request. o is not modified. Invalid reviews return a *StatusError.
func (v Reviewer) Review(ctx context.Context, k *kinds.Kind, namespace string, o runtime.Object, u User) (runtime.Object, error) {
	switch o := o.(type) {
	case *authorizationv1.SelfSubjectAccessReview:
		answer := o.DeepCopy()
		spec := authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: o.Spec.ResourceAttributes, NonResourceAttributes: o.Spec.NonResourceAttributes}
		if errs := append(checkAttributes(&spec), checkMeta(&o.ObjectMeta, "")...); len(errs) > 0 {
			return nil, apierrors.NewInvalid(k.GroupKind(), "", errs)
		}
		answer.Status = v.decide(&spec, u)
		return answer, nil
	case *authorizationv1.SubjectAccessReview:
		answer := o.DeepCopy()
		if errs := append(checkSubject(&o.Spec), checkMeta(&o.ObjectMeta, "")...); len(errs) > 0 {
			return nil, apierrors.NewInvalid(k.GroupKind(), "", errs)
		}
		answer.Status = v.decide(&o.Spec, subjectOf(&o.Spec))
		return answer, nil
	case *authorizationv1.LocalSubjectAccessReview:
		return v.local(k, namespace, o)
	case *authorizationv1.SelfSubjectRulesReview:
		if o.Spec.Namespace == "" {
			return nil, apierrors.NewBadRequest("no namespace on request")
		}
		answer := o.DeepCopy()
		answer.Status = v.rules(u, o.Spec.Namespace)
		return answer, nil
	case *authenticationv1.SelfSubjectReview:
		answer := o.DeepCopy()
		answer.Status.UserInfo = info(u)
		return answer, nil
	case *authenticationv1.TokenReview:
		return v.token(ctx, o)
	}
	return nil, apierrors.NewBadRequest(fmt.Sprintf("%s is not a review that this API answers", k.Kind))
}

func (v Reviewer) local(k *kinds.Kind, namespace string, o *authorizationv1.LocalSubjectAccessReview) (runtime.Object, error) {
	if namespace != o.Namespace {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("metadata.namespace is %q, but the namespace of the request is %q", o.Namespace, namespace))
	}
	errs := append(checkSubject(&o.Spec), checkMeta(&o.ObjectMeta, namespace)...)
	at := field.NewPath("spec")
	if r := o.Spec.ResourceAttributes; r != nil && r.Namespace != o.Namespace {
		errs = append(errs, field.Invalid(at.Child("resourceAttributes", "namespace"), r.Namespace, "must match metadata.namespace"))
	}
	if o.Spec.NonResourceAttributes != nil {
		errs = append(errs, field.Invalid(at.Child("nonResourceAttributes"), o.Spec.NonResourceAttributes.Path, "disallowed on this kind of request"))
	}
	if len(errs) > 0 {
		return nil, apierrors.NewInvalid(k.GroupKind(), "", errs)
	}
	answer := o.DeepCopy()
	answer.Status = v.decide(&o.Spec, subjectOf(&o.Spec))
	return answer, nil
}

// checkMeta rejects metadata, which reviews must not have.
func checkMeta(meta *metav1.ObjectMeta, namespace string) field.ErrorList {
	given := *meta
	given.ManagedFields = nil
	if equality.Semantic.DeepEqual(metav1.ObjectMeta{Namespace: namespace}, given) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata"), meta.Name, "must be empty")}
}

// checkAttributes validates the attributes of a review.
func checkAttributes(spec *authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	if (spec.ResourceAttributes == nil) == (spec.NonResourceAttributes == nil) {
		return field.ErrorList{field.Invalid(field.NewPath("spec"), spec.NonResourceAttributes,
			"exactly one of nonResourceAttributes or resourceAttributes must be specified")}
	}
	return nil
}

func checkSubject(spec *authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	errs := checkAttributes(spec)
	if spec.User == "" && len(spec.Groups) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "user"), spec.User, "at least one of user or group must be specified"))
	}
	return errs
}

func subjectOf(spec *authorizationv1.SubjectAccessReviewSpec) User {
	u := User{Name: spec.User, UID: spec.UID, Groups: spec.Groups}
	for key, values := range spec.Extra {
		if u.Extra == nil {
			u.Extra = map[string][]string{}
		}
		u.Extra[key] = values
	}
	return u
}

// decide evaluates an access review for a user.
func (v Reviewer) decide(spec *authorizationv1.SubjectAccessReviewSpec, u User) authorizationv1.SubjectAccessReviewStatus {
	a := Attributes{User: u}
	if r := spec.ResourceAttributes; r != nil {
		a.Verb, a.Group, a.Resource, a.Subresource, a.Namespace, a.Name = r.Verb, r.Group, r.Resource, r.Subresource, r.Namespace, r.Name
		if r.Resource == "" { // otherwise it would name a path
			return authorizationv1.SubjectAccessReviewStatus{Reason: "no resource is named"}
		}
	} else {
		a.Verb, a.Path = spec.NonResourceAttributes.Verb, spec.NonResourceAttributes.Path
	}
	allowed, reason := v.Policy.Allows(a)
	return authorizationv1.SubjectAccessReviewStatus{Allowed: allowed, Reason: reason}
}

// rules lists what a user may do in a namespace.
func (v Reviewer) rules(u User, namespace string) authorizationv1.SubjectRulesReviewStatus {
	s := authorizationv1.SubjectRulesReviewStatus{
		ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{},
	}
	listed, ok := v.Policy.(*ruleset)
	if !ok {
		s.Incomplete = true
		return s
	}
	for i := range listed.rules {
		r := &listed.rules[i]
		if r.subject(u) == "" || (len(r.Namespaces) > 0 && !slices.Contains(r.Namespaces, namespace)) {
			continue
		}
		s.ResourceRules = append(s.ResourceRules, r.resourceRules()...)
		if len(r.Paths) > 0 {
			s.NonResourceRules = append(s.NonResourceRules, authorizationv1.NonResourceRule{Verbs: r.Verbs, NonResourceURLs: r.Paths})
		}
	}
	return s
}

// resourceRules returns a rule in the form of Kubernetes: one rule per combination of API groups of its resources.
func (r *Rule) resourceRules() []authorizationv1.ResourceRule {
	var out []authorizationv1.ResourceRule
	for _, name := range r.Resources {
		plain, groups := name, groupsOf(name)
		if resource, _, sub := splitResource(name); resource != every {
			plain = resource
			if sub != "" {
				plain += "/" + sub
			}
		}
		at := slices.IndexFunc(out, func(o authorizationv1.ResourceRule) bool { return slices.Equal(o.APIGroups, groups) })
		if at < 0 {
			out, at = append(out, authorizationv1.ResourceRule{Verbs: r.Verbs, APIGroups: groups}), len(out)
		}
		out[at].Resources = append(out[at].Resources, plain)
	}
	return out
}

// groupsOf returns the API groups with a resource of a name in a rule.
func groupsOf(name string) []string {
	resource, group, _ := splitResource(name)
	switch {
	case resource == every && group == "":
		return []string{every}
	case group != "":
		return []string{group}
	}
	var groups []string
	for _, k := range kinds.All() {
		if k.Plural == resource && !slices.Contains(groups, k.Group) {
			groups = append(groups, k.Group)
		}
	}
	return groups
}

func (v Reviewer) token(ctx context.Context, o *authenticationv1.TokenReview) (runtime.Object, error) {
	if o.Spec.Token == "" {
		return nil, apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	answer := o.DeepCopy()
	answer.Status = authenticationv1.TokenReviewStatus{}
	if t, ok := v.Tokens.(AudienceAuthenticator); ok {
		wanted := o.Spec.Audiences
		if len(wanted) == 0 {
			wanted = []string{Audience}
		}
		u, audiences, ok, err := t.AuthenticateFor(ctx, o.Spec.Token, wanted)
		answer.Status = reviewed(u, audiences, ok, err)
		return answer, nil
	}
	if v.Tokens == nil || (len(o.Spec.Audiences) > 0 && !slices.Contains(o.Spec.Audiences, Audience)) {
		return answer, nil
	}
	u, ok, err := v.Tokens.AuthenticateToken(ctx, o.Spec.Token)
	answer.Status = reviewed(u, []string{Audience}, ok, err)
	return answer, nil
}

// reviewed returns the status of a TokenReview.
func reviewed(u User, audiences []string, ok bool, err error) authenticationv1.TokenReviewStatus {
	switch {
	case err != nil:
		return authenticationv1.TokenReviewStatus{Error: err.Error()}
	case !ok:
		return authenticationv1.TokenReviewStatus{Error: "invalid bearer token"}
	}
	return authenticationv1.TokenReviewStatus{Authenticated: true, User: info(u.Authenticated()), Audiences: audiences}
}

func info(u User) authenticationv1.UserInfo {
	out := authenticationv1.UserInfo{Username: u.Name, UID: u.UID, Groups: u.Groups}
	for key, values := range u.Extra {
		if out.Extra == nil {
			out.Extra = map[string]authenticationv1.ExtraValue{}
		}
		out.Extra[key] = values
	}
	return out
}
