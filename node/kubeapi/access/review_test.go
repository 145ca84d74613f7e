package access_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/node/kubeapi/access"
	"monopod/node/kubeapi/kinds"
)

// tokens are users by token; the token "broken" cannot be verified.
type tokens map[string]access.User

func (t tokens) AuthenticateToken(_ context.Context, token string) (access.User, bool, error) {
	if token == "broken" {
		return access.User{}, false, errors.New("the file of tokens cannot be read")
	}
	u, ok := t[token]
	return u, ok, nil
}

// ask reviews as a user of the role edit.
func ask(t *testing.T, namespace string, o runtime.Object) (runtime.Object, error) {
	t.Helper()
	gvks, _, err := kinds.Scheme().ObjectKinds(o)
	if err != nil {
		t.Fatal(err)
	}
	before := o.DeepCopyObject()
	u := access.User{Name: "ed", UID: "7", Groups: []string{access.GroupEdit}, Extra: map[string][]string{"k": {"v"}}}.Authenticated()
	v := access.Reviewer{Policy: access.NewPolicy(nil), Tokens: tokens{"good": {Name: "ci", UID: "1", Groups: []string{"ops"}}}}
	answer, err := v.Review(t.Context(), kinds.ByKind(gvks[0]), namespace, o, u)
	if text, was := toString(o), toString(before); text != was {
		t.Errorf("the review is changed: %s", text)
	}
	return answer, err
}

func toString(o runtime.Object) string {
	var b strings.Builder
	_ = kinds.Codecs().LegacyCodec(kinds.Served{}.GroupVersions()...).Encode(o, &b)
	return b.String()
}

func pods(verb, namespace string) *authorizationv1.ResourceAttributes {
	return &authorizationv1.ResourceAttributes{Verb: verb, Resource: "pods", Namespace: namespace}
}

func TestSelfSubjectAccessReview(t *testing.T) {
	for name, tt := range map[string]struct {
		spec authorizationv1.SelfSubjectAccessReviewSpec
		want bool
	}{
		"pods":              {authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: pods("create", "default")}, true},
		"nodes":             {authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "patch", Resource: "nodes"}}, false},
		"all":               {authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "*", Resource: "*", Group: "*"}}, false},
		"a path":            {authorizationv1.SelfSubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/apis"}}, true},
		"another path":      {authorizationv1.SelfSubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/logs"}}, false},
		"nothing":           {authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get"}}, false},
		"exec by WebSocket": {authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods", Subresource: "exec"}}, true},
	} {
		answer, err := ask(t, "", &authorizationv1.SelfSubjectAccessReview{Spec: tt.spec})
		if err != nil {
			t.Fatal(err)
		}
		if s := answer.(*authorizationv1.SelfSubjectAccessReview).Status; s.Allowed != tt.want || s.Denied || (s.Allowed && s.Reason == "") {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

func TestSubjectAccessReview(t *testing.T) {
	for name, tt := range map[string]struct {
		user   string
		groups []string
		verb   string
		want   bool
	}{
		"a viewer reads":              {"v", []string{access.GroupView}, "get", true},
		"a viewer does not write":     {"v", []string{access.GroupView}, "create", false},
		"a group without a user":      {"", []string{access.GroupAdmin}, "create", true},
		"the asking user is not used": {"ed", nil, "get", false},
	} {
		spec := authorizationv1.SubjectAccessReviewSpec{User: tt.user, Groups: tt.groups, ResourceAttributes: pods(tt.verb, "a"), Extra: map[string]authorizationv1.ExtraValue{"k": {"v"}}}
		answer, err := ask(t, "", &authorizationv1.SubjectAccessReview{Spec: spec})
		if err != nil {
			t.Fatal(err)
		}
		if got := answer.(*authorizationv1.SubjectAccessReview).Status.Allowed; got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
		local, err := ask(t, "a", &authorizationv1.LocalSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Namespace: "a"}, Spec: spec})
		if err != nil {
			t.Fatal(err)
		}
		if got := local.(*authorizationv1.LocalSubjectAccessReview).Status.Allowed; got != tt.want {
			t.Errorf("local: %s: %v", name, got)
		}
	}
}

func TestReviewsThatAreInvalid(t *testing.T) {
	path := &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/"}
	named := metav1.ObjectMeta{Name: "x"}
	in := func(ns string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns} }
	for name, tt := range map[string]struct {
		o    runtime.Object
		want string
		code int32
	}{
		"both":        {&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: pods("get", ""), NonResourceAttributes: path}}, "exactly one of", 422},
		"neither":     {&authorizationv1.SelfSubjectAccessReview{}, "exactly one of", 422},
		"a name":      {&authorizationv1.SelfSubjectAccessReview{ObjectMeta: named, Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: pods("get", "")}}, "must be empty", 422},
		"nobody":      {&authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: pods("get", "")}}, "at least one of user or group", 422},
		"two spaces":  {&authorizationv1.LocalSubjectAccessReview{ObjectMeta: in("a"), Spec: authorizationv1.SubjectAccessReviewSpec{User: "u", ResourceAttributes: pods("get", "b")}}, "must match metadata.namespace", 422},
		"other space": {&authorizationv1.LocalSubjectAccessReview{ObjectMeta: in("b"), Spec: authorizationv1.SubjectAccessReviewSpec{User: "u", ResourceAttributes: pods("get", "b")}}, "namespace of the request", 400},
		"a path":      {&authorizationv1.LocalSubjectAccessReview{ObjectMeta: in("a"), Spec: authorizationv1.SubjectAccessReviewSpec{User: "u", NonResourceAttributes: path}}, "disallowed", 422},
		"no space":    {&authorizationv1.SelfSubjectRulesReview{}, "no namespace on request", 400},
		"no token":    {&authenticationv1.TokenReview{}, "token is required", 400},
		"no review":   {&corev1.Pod{}, "not a review", 400},
	} {
		_, err := ask(t, "a", tt.o)
		var status apierrors.APIStatus
		if !errors.As(err, &status) || status.Status().Code != tt.code || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSelfSubjectReview(t *testing.T) {
	answer, err := ask(t, "", &authenticationv1.SelfSubjectReview{})
	if err != nil {
		t.Fatal(err)
	}
	who := answer.(*authenticationv1.SelfSubjectReview).Status.UserInfo
	if who.Username != "ed" || who.UID != "7" || !slices.Equal(who.Groups, []string{access.GroupEdit, access.GroupAuthenticated}) || who.Extra["k"][0] != "v" {
		t.Errorf("%+v", who)
	}
}

func TestTokenReview(t *testing.T) {
	for name, tt := range map[string]struct {
		spec authenticationv1.TokenReviewSpec
		user string
		err  bool
	}{
		"known":            {authenticationv1.TokenReviewSpec{Token: "good"}, "ci", false},
		"for us":           {authenticationv1.TokenReviewSpec{Token: "good", Audiences: []string{"other", access.Audience}}, "ci", false},
		"for others":       {authenticationv1.TokenReviewSpec{Token: "good", Audiences: []string{"other"}}, "", false},
		"unknown":          {authenticationv1.TokenReviewSpec{Token: "bad"}, "", true},
		"not to be proved": {authenticationv1.TokenReviewSpec{Token: "broken"}, "", true},
	} {
		claimed := authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "root"}}
		answer, err := ask(t, "", &authenticationv1.TokenReview{Spec: tt.spec, Status: claimed})
		if err != nil {
			t.Fatal(err)
		}
		s := answer.(*authenticationv1.TokenReview).Status
		if s.Authenticated != (tt.user != "") || s.User.Username != tt.user || (s.Error != "") != tt.err {
			t.Errorf("%s: %+v", name, s)
		}
		if tt.user != "" && !slices.Contains(s.User.Groups, access.GroupAuthenticated) {
			t.Errorf("%s: groups are %v", name, s.User.Groups)
		}
	}
	v := access.Reviewer{Policy: access.NewPolicy(nil)}
	answer, err := v.Review(t.Context(), kinds.ByKind(authenticationv1.SchemeGroupVersion.WithKind("TokenReview")), "", &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "good"}}, access.Root())
	if err != nil || answer.(*authenticationv1.TokenReview).Status.Authenticated {
		t.Errorf("without tokens: %v, %v", answer, err)
	}
}

func TestSelfSubjectRulesReview(t *testing.T) {
	rules, err := access.ParseRules(map[string][]string{"user:u": {"view@a", "create:events", "get:*/scale@a", "update:deployments.apps/scale", "delete:pods@b", "/metrics"}})
	if err != nil {
		t.Fatal(err)
	}
	u := access.User{Name: "u"}.Authenticated()
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "a"}}
	kind := kinds.ByKind(schema.GroupVersionKind{Group: authorizationv1.GroupName, Version: "v1", Kind: "SelfSubjectRulesReview"})
	p := access.NewPolicy(rules)
	answer, err := access.Reviewer{Policy: p}.Review(t.Context(), kind, "", review, u)
	if err != nil {
		t.Fatal(err)
	}
	s := answer.(*authorizationv1.SelfSubjectRulesReview).Status
	if s.Incomplete || len(s.NonResourceRules) != 3 {
		t.Errorf("%+v", s.NonResourceRules)
	}
	has := func(verb, group, resource string) bool {
		return slices.ContainsFunc(s.ResourceRules, func(r authorizationv1.ResourceRule) bool {
			return slices.Contains(r.Verbs, verb) && slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource)
		})
	}
	for _, tt := range []struct {
		verb, group, resource string
		want                  bool
	}{
		{"list", "", "pods", true},
		{"list", "apps", "deployments", true},
		{"list", "", "deployments", false},
		{"delete", "", "pods", false},
		{"create", "", "events", true},
		{"create", "events.k8s.io", "events", true},
		{"get", "*", "*/scale", true},
		{"update", "apps", "deployments/scale", true},
		{"create", "authorization.k8s.io", "selfsubjectaccessreviews", true},
		{"get", "", "secrets", false},
	} {
		if got := has(tt.verb, tt.group, tt.resource); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
	// What is listed is allowed.
	for _, r := range s.ResourceRules {
		for _, group := range r.APIGroups {
			for _, name := range r.Resources {
				resource, sub, _ := strings.Cut(name, "/")
				if resource == "*" {
					continue
				}
				if ok, _ := p.Allows(access.Attributes{User: u, Verb: r.Verbs[0], Group: group, Resource: resource, Subresource: sub, Namespace: "a"}); !ok {
					t.Errorf("%s %s of %q is listed, but refused", r.Verbs[0], name, group)
				}
			}
		}
	}
}

// TestAnotherPolicyIsListedAsIncomplete: only the rules of this package are known.
func TestAnotherPolicyIsListedAsIncomplete(t *testing.T) {
	kind := kinds.ByKind(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectRulesReview"))
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "a"}}
	answer, err := access.Reviewer{Policy: everything{}}.Review(t.Context(), kind, "", review, access.Root())
	if err != nil || !answer.(*authorizationv1.SelfSubjectRulesReview).Status.Incomplete {
		t.Errorf("%v, %v", answer, err)
	}
}

type everything struct{}

func (everything) Allows(access.Attributes) (bool, string) { return true, "" }
