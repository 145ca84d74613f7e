package kubeapi

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"monopod/node/kubeapi/access"
	"monopod/node/kubeapi/streams"
)

// tokenUsers are users by their tokens.
type tokenUsers map[string]access.User

func (t tokenUsers) AuthenticateToken(_ context.Context, token string) (access.User, bool, error) {
	u, ok := t[token]
	return u, ok, nil
}

// as sends requests as a user.
type as struct {
	user string
	http.RoundTripper
}

func (a as) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("X-User", a.user)
	return a.RoundTripper.RoundTrip(r)
}

func TestReviewsOfClientGo(t *testing.T) {
	s := serveSite(t, Config{Tokens: tokenUsers{"good": {Name: "ci"}}})
	for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		t.Run(contentType, func(t *testing.T) {
			config := func(user string) *rest.Config {
				return &rest.Config{
					Host: "http://api", Transport: as{user, s.transport}, QPS: -1,
					ContentConfig: rest.ContentConfig{ContentType: contentType, AcceptContentTypes: contentType + ",application/json"},
				}
			}
			editor, admin := authorization.NewForConfigOrDie(config("ed/monopod:edit")), authorization.NewForConfigOrDie(config(""))
			pods := &authorizationv1.ResourceAttributes{Namespace: "a", Verb: "create", Resource: "pods"}
			nodes := &authorizationv1.ResourceAttributes{Verb: "patch", Resource: "nodes"}
			for attributes, want := range map[*authorizationv1.ResourceAttributes]bool{pods: true, nodes: false} {
				self, err := editor.SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
					Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes},
				}, metav1.CreateOptions{})
				if err != nil || self.Status.Allowed != want {
					t.Errorf("self: %s: %+v, %v", attributes.Resource, self, err)
				}
				other, err := admin.SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
					Spec: authorizationv1.SubjectAccessReviewSpec{User: "x", Groups: []string{access.GroupEdit}, ResourceAttributes: attributes},
				}, metav1.CreateOptions{})
				if err != nil || other.Status.Allowed != want {
					t.Errorf("other: %s: %+v, %v", attributes.Resource, other, err)
				}
			}
			local, err := admin.LocalSubjectAccessReviews("a").Create(t.Context(), &authorizationv1.LocalSubjectAccessReview{
				ObjectMeta: metav1.ObjectMeta{Namespace: "a"}, Spec: authorizationv1.SubjectAccessReviewSpec{Groups: []string{access.GroupEdit}, ResourceAttributes: pods},
			}, metav1.CreateOptions{})
			if err != nil || !local.Status.Allowed {
				t.Errorf("local: %+v, %v", local, err)
			}
			rules, err := editor.SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{
				Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "a"},
			}, metav1.CreateOptions{})
			if err != nil || len(rules.Status.ResourceRules) == 0 || len(rules.Status.NonResourceRules) == 0 {
				t.Errorf("rules: %+v, %v", rules, err)
			}
			who, err := authentication.NewForConfigOrDie(config("ed/monopod:edit")).SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
			if err != nil || who.Status.UserInfo.Username != "ed" || !slices.Contains(who.Status.UserInfo.Groups, access.GroupEdit) {
				t.Errorf("who: %+v, %v", who, err)
			}
			token, err := authentication.NewForConfigOrDie(config("")).TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{
				Spec: authenticationv1.TokenReviewSpec{Token: "good"},
			}, metav1.CreateOptions{})
			if err != nil || !token.Status.Authenticated || token.Status.User.Username != "ci" {
				t.Errorf("token: %+v, %v", token, err)
			}
			if _, err := editor.SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{}, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
				t.Errorf("an editor asks about others: %v", err)
			}
			if _, err := editor.SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{}, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
				t.Errorf("an empty review: %v", err)
			}
		})
	}
}

// TestPrivilegedPodsNeedTheRightToThem: commands in one of them are commands of root.
func TestPrivilegedPodsNeedTheRightToThem(t *testing.T) {
	pod := testPod("a", "agent", "x")
	pod.Spec.HostPID = true
	s := serveSite(t, Config{Streams: streams.New(streams.Config{})}, pod)
	for _, sub := range []string{"exec", "attach"} {
		code, body := s.body("ed/monopod:edit", http.MethodPost, "/api/v1/namespaces/a/pods/agent/"+sub+"?container=c&command=id")
		if code != http.StatusForbidden || !strings.Contains(body, "violates PodSecurity") {
			t.Errorf("%s: %d: %s", sub, code, body)
		}
	}
}
