package kubeapi

import (
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	core "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"monopod/manifests"
	"monopod/node/kubeapi/access"
	"monopod/node/kubeapi/tokens"
)

// signer records what it signs.
type signer struct {
	subject   tokens.Subject
	audiences []string
	life      time.Duration
	// err is the error of KeySet.
	err error
}

func (s *signer) Sign(subject tokens.Subject, audiences []string, life time.Duration) (string, time.Time, error) {
	s.subject, s.audiences, s.life = subject, audiences, life
	return "signed", time.Unix(3600, 0), nil
}

func (s *signer) Configuration(server string) ([]byte, error) { return []byte("at " + server), nil }

func (s *signer) KeySet() ([]byte, error) { return []byte("keys"), s.err }

func TestTokensOfServiceAccounts(t *testing.T) {
	robot := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "robot", UID: "a1"}}
	web := testPod("shop", "web", "web")
	web.UID, web.Spec.ServiceAccountName = "p1", "robot"
	seconds := func(n int64) *int64 { return &n }
	bound := func(kind, name, uid string) *authenticationv1.BoundObjectReference {
		version := "v1"
		if kind == "Deployment" {
			version = "apps/v1"
		}
		return &authenticationv1.BoundObjectReference{Kind: kind, APIVersion: version, Name: name, UID: types.UID(uid)}
	}
	for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		for name, c := range map[string]struct {
			user, account string
			meta          metav1.ObjectMeta
			spec          authenticationv1.TokenRequestSpec
			life          time.Duration
			pod           string
			fails         string
		}{
			"as it is":           {life: time.Hour},
			"a day":              {spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: seconds(1 << 20)}, life: 24 * time.Hour},
			"too short":          {spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: seconds(599)}, fails: "may not specify a duration less than 10 minutes"},
			"too long":           {spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: seconds(1 << 33)}, fails: "larger than 2^32 seconds"},
			"for others":         {spec: authenticationv1.TokenRequestSpec{Audiences: []string{"vault"}}, life: time.Hour},
			"of a pod":           {spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound("Pod", "web", "p1")}, life: time.Hour, pod: "web"},
			"of a pod, no uid":   {spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound("Pod", "web", "")}, life: time.Hour, pod: "web"},
			"of another pod":     {spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound("Pod", "web", "p2")}, fails: "does not match the UID in record"},
			"of no pod":          {spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound("Pod", "none", "")}, fails: "not found"},
			"of a Deployment":    {spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound("Deployment", "web", "")}, fails: "only v1 Pod is supported"},
			"of a pod of others": {account: "other", spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound("Pod", "web", "")}, fails: "different serviceaccount name"},
			"of another name":    {meta: metav1.ObjectMeta{Name: "other"}, fails: "metadata.name: Invalid value: \"other\": must match the service account name if specified"},
			"of another uid":     {meta: metav1.ObjectMeta{UID: "other"}, fails: "does not match the UID of the service account (a1)"},
			"of its uid":         {meta: metav1.ObjectMeta{Name: "robot", UID: "a1"}, life: time.Hour},
			"of no account":      {account: "none", fails: "not found"},
			"edit may not":       {user: "ed/monopod:edit", fails: "cannot create resource"},
		} {
			signs := &signer{}
			s := serveSite(t, Config{Issuer: signs}, robot, web, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "other"}})
			client := core.NewForConfigOrDie(&rest.Config{
				Host: "http://api", Transport: as{c.user, s.transport}, QPS: -1,
				ContentConfig: rest.ContentConfig{ContentType: contentType, AcceptContentTypes: contentType + ",application/json"},
			})
			if c.account == "" {
				c.account = "robot"
			}
			answer, err := client.ServiceAccounts("shop").CreateToken(t.Context(), c.account, &authenticationv1.TokenRequest{ObjectMeta: c.meta, Spec: c.spec}, metav1.CreateOptions{})
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Errorf("%s: %v", name, err)
				}
				continue
			}
			audience := "https://kubernetes.default.svc"
			if len(c.spec.Audiences) > 0 {
				audience = c.spec.Audiences[0]
			}
			pod := ""
			if signs.subject.Pod != nil {
				pod = signs.subject.Pod.Name
			}
			if err != nil || answer.Status.Token != "signed" || answer.Status.ExpirationTimestamp.Unix() != 3600 || answer.Name != "robot" || answer.UID != "a1" || *answer.Spec.ExpirationSeconds != int64(c.life/time.Second) {
				t.Errorf("%s: %+v, %v", name, answer, err)
			}
			if signs.life != c.life || signs.audiences[0] != audience || pod != c.pod || signs.subject.ServiceAccount != (tokens.Object{Name: "robot", UID: "a1"}) {
				t.Errorf("%s: %+v", name, signs)
			}
		}
	}
}

func TestWithoutAnIssuerThereAreNoTokens(t *testing.T) {
	s := serveSite(t, Config{})
	client := core.NewForConfigOrDie(&rest.Config{Host: "http://api", Transport: as{"", s.transport}, QPS: -1})
	_, err := client.ServiceAccounts("shop").CreateToken(t.Context(), "robot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), "token requests are disabled") {
		t.Error(err)
	}
}

// TestTheTokenOfAPodNeedsItsPermissions: otherwise permission to create tokens would include those of all pods in the namespace.
func TestTheTokenOfAPodNeedsItsPermissions(t *testing.T) {
	web := testPod("shop", "web", "web")
	web.Annotations = map[string]string{manifests.AnnotationAPIAccess: "admin"}
	rules, err := access.ParseRules(map[string][]string{"user:minter": {"create:serviceaccounts/token@shop"}})
	if err != nil {
		t.Fatal(err)
	}
	s := serveSite(t, Config{Issuer: &signer{}, Policy: access.NewPolicy(rules)}, web, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "default"}})
	for user, want := range map[string]string{"minter": "permissions that User", "": ""} {
		client := core.NewForConfigOrDie(&rest.Config{Host: "http://api", Transport: as{user, s.transport}, QPS: -1})
		asked := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "web"}}}
		_, err := client.ServiceAccounts("shop").CreateToken(t.Context(), "default", asked, metav1.CreateOptions{})
		if (err == nil) != (want == "") || err != nil && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v", user, err)
		}
		asked.Spec.BoundObjectRef = nil
		if _, err := client.ServiceAccounts("shop").CreateToken(t.Context(), "default", asked, metav1.CreateOptions{}); err != nil {
			t.Errorf("%q, without a pod: %v", user, err)
		}
	}
}
