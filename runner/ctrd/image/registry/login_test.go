package registry

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestLoginsMatchLikeKubelets(t *testing.T) {
	for _, c := range []struct {
		key, image string
		want       bool
	}{
		{"r.example", "r.example/a:1", true},
		{"https://r.example", "r.example/a:1", true},
		{"https://r.example/v1/", "r.example/a:1", true},
		{"https://r.example/v2/", "r.example/team/a:1", true},
		{"r.example", "r.example:5000/a:1", false},
		{"r.example:5000", "r.example:5000/a:1", true},
		{"*.example", "r.example/a:1", true},
		{"*.example", "a.r.example/a:1", false},
		{"r*.ex*", "r1.example/a:1", true},
		{"r.example/team", "r.example/team/a:1", true},
		{"r.example/team", "r.example/other/a:1", false},
		{"https://index.docker.io/v1/", "docker.io/library/a:1", true},
		{"docker.io", "docker.io/library/a:1", true},
		{"https://index.docker.io/v1/", "r.example/a:1", false},
		{"[", "r.example/a:1", false},
	} {
		if got := (Login{Pattern: patternOf(c.key)}).matches(c.image); got != c.want {
			t.Errorf("%s matches %s: %v", c.key, c.image, got)
		}
	}
}

func TestParseSecret(t *testing.T) {
	auth := base64.StdEncoding.EncodeToString([]byte("me:pass:word"))
	const entries = `{"r.example":{"auth":%q},"r.example/team":{"username":"u","password":"p"},"t.example":{"identitytoken":"tok"}}`
	body := fmt.Sprintf(entries, auth)
	for _, s := range []*corev1.Secret{
		{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":` + body + `}`)}},
		{Type: corev1.SecretTypeDockercfg, Data: map[string][]byte{corev1.DockerConfigKey: []byte(body)}},
	} {
		logins, err := ParseSecret(s)
		if err != nil {
			t.Fatal(err)
		}
		ctx := WithLogins(context.Background(), logins)
		for image, want := range map[string]string{
			"r.example/team/a:1": "u/p me/pass:word -", "r.example/a:1": "me/pass:word -", "t.example/a:1": "/tok -", "other.example/a:1": "-",
		} {
			var got []string
			for _, l := range Candidates(ctx, image) {
				if l == nil {
					got = append(got, "-")
					continue
				}
				user, secret := l.credentials()
				got = append(got, user+"/"+secret)
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%s %s: got %q, want %q", s.Type, image, got, want)
			}
		}
		if PullKey(ctx, "r.example/a:1") == PullKey(context.Background(), "r.example/a:1") {
			t.Error("a pull with a login is shared with one without")
		}
	}
	if logins, err := ParseSecret(&corev1.Secret{Type: corev1.SecretTypeOpaque}); err != nil || len(logins) != 0 {
		t.Errorf("an opaque secret gives %v, %v", logins, err)
	}
	bad := &corev1.Secret{Type: corev1.SecretTypeDockercfg, Data: map[string][]byte{corev1.DockerConfigKey: []byte(`{"r":{"auth":"s3cret!"}}`)}}
	if _, err := ParseSecret(bad); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("got %v", err)
	}
}
