package client_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/node/apiserver/client"
)

func TestErrorsOfServersAreShort(t *testing.T) {
	long := strings.Repeat("x", 5000)
	c, err := client.Open(liar(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "code": 200, "message": long})
	}), "test", quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	err = c.Do(t.Context(), client.Request{Method: http.MethodGet, API: client.CoreAPI, Resource: "nodes", Name: "n1"})
	if client.Code(err) != http.StatusForbidden || len(err.Error()) > 2*client.MaxReason {
		t.Error(err)
	}
}

func TestAnAnswerThatIsTooLargeIsNone(t *testing.T) {
	c, err := client.Open(liar(t, flood(`{"a":"`, strings.Repeat("x", 1<<16), 1000)), "test", quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Do(t.Context(), client.Request{Method: http.MethodGet, API: client.CoreAPI, Resource: "nodes", Name: "n1", Into: &corev1.Node{}}); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Error(err)
	}
}

func TestKubeconfigsThatCannotBeUsed(t *testing.T) {
	for _, tt := range []struct{ cluster, user, says string }{
		{"{server: 'http://x'}", "{}", `server "http://x" is not an https URL`},
		{"{server: ''}", "{}", "invalid configuration"},
		{"{server: 'https://x'}", "{auth-provider: {name: gcp}}", "no Auth Provider found"},
		{"{server: 'https://x'}", "{username: x, password: z, token: z}", "more than one authentication method"},
		{"{server: 'https://x'}", "{client-certificate: a}", "client-key-data or client-key must be specified"},
		{"{server: 'https://x', certificate-authority: /does/not/exist}", "{}", "no such file"},
		{"{server: 'https://x', certificate-authority-data: eA==}", "{}", "unable to load root certificates"},
		{"{server: 'https://x'}", "{client-certificate-data: eA==, client-key-data: eA==}", "failed to find any PEM data"},
	} {
		if _, err := client.Open(writeKubeconfig(t, tt.cluster, tt.user), "test", quiet()); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s %s: %v", tt.cluster, tt.user, err)
		}
	}
	for text, says := range map[string]string{"kind: Pod": "not a kubeconfig", "current-context: none": `the current context "none"`} {
		path := filepath.Join(t.TempDir(), "kubeconfig")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Open(path, "test", quiet()); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestPathsOfAKubeconfigAreRelativeToIt(t *testing.T) {
	path := writeKubeconfig(t, "{server: 'https://x', certificate-authority: ca.crt}", "{client-certificate: a.crt, client-key: a.key}")
	dir := filepath.Dir(path)
	for _, name := range []string{"ca.crt", "a.crt", "a.key"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := client.ReadKubeconfig(path)
	if err != nil || got.CAFile != filepath.Join(dir, "ca.crt") || got.CertFile != filepath.Join(dir, "a.crt") || got.KeyFile != filepath.Join(dir, "a.key") {
		t.Errorf("%+v %v", got, err)
	}
}
