package access_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
	"monopod/node/kubeapi/access"
	"monopod/node/kubeapi/kinds"
)

func policyOf(t *testing.T, rules map[string][]string) access.Policy {
	t.Helper()
	parsed, err := access.ParseRules(rules)
	if err != nil {
		t.Fatal(err)
	}
	return access.NewPolicy(parsed)
}

// TestNobodyGivesAPodMoreRightsThanTheirOwn: a user who writes a pod, or runs commands in it, has its token.
func TestNobodyGivesAPodMoreRightsThanTheirOwn(t *testing.T) {
	t.Parallel()
	p := policyOf(t, map[string][]string{
		"user:system:serviceaccount:ns:reader": {"secrets@ns"}, "user:system:serviceaccount:ns:root": {"*"},
		"user:system:serviceaccount:ns:paths": {"get:/metrics"}, "user:local": {"edit@ns"}, "group:system:serviceaccounts:every": {"pods/exec@ns"},
	})
	for _, c := range []struct {
		group, account, role string
		want                 bool
	}{
		{access.GroupAdmin, "default", "admin", true},
		{access.GroupMasters, "root", "admin", true},
		{access.GroupEdit, "default", "view", true},
		{access.GroupEdit, "default", "edit", true},
		{access.GroupEdit, "default", "admin", false},
		{access.GroupEdit, "default", "rules", true},
		{access.GroupEdit, "reader", "rules", true},
		{access.GroupEdit, "root", "rules", false},
		{access.GroupEdit, "paths", "view", false},
		{access.GroupEdit, "root", "", true},
		{access.GroupView, "default", "edit", false},
		{"none", "default", "view", false},
	} {
		u := access.User{Name: "u", Groups: []string{c.group}}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}}
		if c.role != "" {
			pod.Annotations = map[string]string{manifests.AnnotationAPIAccess: c.role}
		}
		if c.account != "default" {
			pod.Spec.ServiceAccountName = c.account
		}
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "d"}}
		deployment.Spec.Template.Annotations, deployment.Spec.Template.Spec = pod.Annotations, pod.Spec
		for _, o := range []kinds.Object{pod, deployment} {
			err := access.Admit(u, p, "create", o)
			if (err == nil) != c.want || err != nil && !strings.Contains(err.Error(), "permissions that User \"u\" lacks") {
				t.Errorf("%s writes a %T of %s with %q: %v", c.group, o, c.account, c.role, err)
			}
		}
	}
	// Rights in a namespace are less than a role.
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", Annotations: map[string]string{manifests.AnnotationAPIAccess: "view"}}}
	if err := access.Admit(access.User{Name: "local"}, p, "create", pod); err == nil {
		t.Error("who edits a namespace gives a pod the right to read all")
	}
	if !access.Covers(p, access.User{Name: "local"}, access.Account("ns", "reader", "")) {
		t.Error("who edits a namespace may read its Secrets")
	}
	if access.Covers(silent{}, access.User{}, access.Account("ns", "reader", "")) {
		t.Error("another policy")
	}
}

// silent is a Policy that allows nothing.
type silent struct{}

func (silent) Allows(access.Attributes) (bool, string) { return false, "" }

// accounts are tokens for audiences.
type accounts struct{ err error }

func (a accounts) AuthenticateToken(ctx context.Context, token string) (access.User, bool, error) {
	u, _, ok, err := a.AuthenticateFor(ctx, token, []string{access.Audience})
	return u, ok, err
}

func (a accounts) AuthenticateFor(_ context.Context, token string, audiences []string) (access.User, []string, bool, error) {
	if token != "pod" {
		return access.User{}, nil, false, a.err
	}
	return access.Account("ns", "sa", "view"), audiences[:1], true, nil
}

// file are tokens that know no audience.
type file struct{}

func (file) AuthenticateToken(_ context.Context, token string) (access.User, bool, error) {
	return access.User{Name: "of a file"}, token == "file", nil
}

func TestTokensOfPodsAndOfAFile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		token     string
		audiences []string
		want      string
	}{
		{"pod", nil, "system:serviceaccount:ns:sa " + access.Audience},
		{"pod", []string{"vault", "x"}, "system:serviceaccount:ns:sa vault"},
		{"file", nil, "of a file " + access.Audience},
		{"file", []string{"x", access.Audience}, "of a file " + access.Audience},
		{"file", []string{"vault"}, ""},
		{"none", nil, ""},
	} {
		v := access.Reviewer{Policy: access.NewPolicy(nil), Tokens: access.Union{accounts{}, file{}}}
		k := kinds.ByKind(authenticationv1.SchemeGroupVersion.WithKind("TokenReview"))
		o, err := v.Review(t.Context(), k, "", &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: c.token, Audiences: c.audiences}}, access.User{})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if s := o.(*authenticationv1.TokenReview).Status; s.Authenticated {
			got = s.User.Username + " " + strings.Join(s.Audiences, ",")
			if !slices.Contains(s.User.Groups, access.GroupAuthenticated) {
				t.Errorf("%+v", s.User)
			}
		}
		if got != c.want {
			t.Errorf("%s for %v: %q, want %q", c.token, c.audiences, got, c.want)
		}
	}
	gone := errors.New("the pod is gone")
	if _, ok, err := (access.Union{accounts{gone}, file{}}).AuthenticateToken(t.Context(), "x"); ok || !errors.Is(err, gone) {
		t.Errorf("%t, %v", ok, err)
	}
	if _, ok, err := (access.Union{accounts{gone}, file{}}).AuthenticateToken(t.Context(), "file"); !ok || err != nil {
		t.Errorf("%t, %v", ok, err)
	}
}

// TestNamespacesGiveRights: users who may write there, or run commands in pods, could use the tokens.
func TestNamespacesGiveRights(t *testing.T) {
	t.Parallel()
	p := access.NewPolicyWith(nil, map[string]string{"ns": "admin"})
	for name, tt := range map[string]struct {
		namespace   string
		annotations map[string]string
		group       string
		want        bool
	}{
		"another namespace":          {"other", nil, access.GroupEdit, true},
		"less than the namespace":    {"ns", nil, access.GroupEdit, false},
		"as much":                    {"ns", nil, access.GroupAdmin, true},
		"an own right":               {"ns", map[string]string{manifests.AnnotationAPIAccess: "view"}, access.GroupEdit, true},
		"a forged one":               {"ns", map[string]string{manifests.AnnotationNamespaceAccess: "view"}, access.GroupEdit, false},
		"one that the pod still has": {"other", map[string]string{manifests.AnnotationNamespaceAccess: "admin"}, access.GroupEdit, false},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: tt.namespace, Name: "p", Annotations: tt.annotations}}
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: tt.namespace, Name: "d"}}
		deployment.Spec.Template.Annotations = tt.annotations
		for _, o := range []kinds.Object{pod, deployment} {
			if err := access.Admit(access.User{Name: "u", Groups: []string{tt.group}}, p, "create", o); (err == nil) != tt.want {
				t.Errorf("%s: %T: %v", name, o, err)
			}
		}
	}
}
