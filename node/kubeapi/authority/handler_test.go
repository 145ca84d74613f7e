package authority_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"monopod/node/kubeapi/authority"
	"monopod/node/localapi"
)

func TestKubeconfigsOverTheSocket(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	for name, tt := range map[string]struct {
		address, body string
		code          int
		want          string
	}{
		"a role":         {"127.0.0.1:6443", `{"user":"admin","groups":["monopod:admin"]}`, 200, "https://127.0.0.1:6443"},
		"another server": {"127.0.0.1:6443", `{"user":"admin","server":"https://edge:1"}`, 200, "https://edge:1"},
		"all addresses":  {"0.0.0.0:6443", `{"user":"admin"}`, 200, "https://127.0.0.1:6443"},
		"also IPv6":      {"[::]:6443", `{"user":"admin"}`, 200, "https://[::1]:6443"},
		"disabled":       {"", `{"user":"admin"}`, 400, "apiServer: {address: 127.0.0.1:6443}"},
		"no user":        {"127.0.0.1:6443", `{}`, 400, `user ""`},
		"no JSON":        {"127.0.0.1:6443", `{`, 400, "unexpected EOF"},
		"an unknown key": {"127.0.0.1:6443", `{"role":"admin"}`, 400, "unknown field"},
		"far too much":   {"127.0.0.1:6443", `{"user":"` + strings.Repeat("x", 1<<20) + `"}`, 400, "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			authority.Handler(m.start(), tt.address, "edge-1").ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/apis/monopod.dev/v1alpha1/agents/self/kubeconfig", strings.NewReader(tt.body)))
			if w.Code != tt.code {
				t.Fatalf("%d: %s", w.Code, w.Body)
			}
			if tt.code != http.StatusOK {
				var s metav1.Status
				check(t, json.Unmarshal(w.Body.Bytes(), &s))
				if s.Kind != "Status" || !strings.Contains(s.Message, tt.want) {
					t.Errorf("%+v", s)
				}
				return
			}
			var k localapi.Kubeconfig
			check(t, json.Unmarshal(w.Body.Bytes(), &k))
			rest, err := clientcmd.RESTConfigFromKubeConfig([]byte(k.Kubeconfig))
			check(t, err)
			if rest.Host != tt.want {
				t.Errorf("the server is %s", rest.Host)
			}
		})
	}
}

func TestADamagedAuthorityIsReportedOverTheSocket(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	check(t, os.MkdirAll(m.dir, 0o700))
	check(t, os.WriteFile(m.file("ca.pem"), []byte("rubbish"), 0o600))
	w := httptest.NewRecorder()
	authority.Handler(m.start(), "127.0.0.1:6443", "n").ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"user":"u"}`)))
	if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "restore the file from a backup") {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
}
