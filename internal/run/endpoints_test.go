package run

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/daemontest"
	"monopod/internal/daemontest/clitest"
	"monopod/internal/loopback"
	"monopod/internal/testfiles"
	"monopod/runner/runtimetest"
)

// over sends a request to a server of the daemon over TCP.
func over(d *clitest.Daemon, url string, token string) (int, string, error) {
	d.T.Helper()
	pool := x509.NewCertPool()
	if pem, err := os.ReadFile(d.Path("root", "pki", "monopod.crt")); err == nil {
		pool.AppendCertsFromPEM(pem)
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "test-node"}}}
	req, err := http.NewRequestWithContext(d.T.Context(), http.MethodGet, url, nil)
	if err != nil {
		d.T.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, string(b), err
}

func TestTheDaemonAnswersOverTCPWhoMayAsk(t *testing.T) {
	t.Parallel()
	addr := loopback.Address()
	d := newDaemon(t, "address: "+addr, "port: 10250", "readOnlyPort: 10255", "healthzPort: 10248", "healthzBindAddress: "+addr,
		"authentication: {tokenFile: tokens, anonymous: {enabled: true}}",
		"authorization: {mode: Rules, rules: {'user:prometheus': [metrics, stats, 'create:proxy'], 'group:system:unauthenticated': [healthz]}}")
	testfiles.Write(t, d.Path("tokens"), "0123456789abcdef,prometheus\n")
	d.Put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.Start()
	d.Shows("Running", "get", "pods")
	const token = "0123456789abcdef"
	for _, row := range []struct {
		url, token string
		code       int
		want       string
	}{
		{"https://%s:10250/healthz", "", 200, "ok"},
		{"https://%s:10250/metrics", "", 403, "Forbidden (user=system:anonymous, verb=get, resource=nodes, subresource(s)=[metrics])"},
		{"https://%s:10250/metrics", token, 200, "kubelet_running_pods 1\n"},
		{"https://%s:10250/pods", token, 403, "Forbidden (user=prometheus, verb=get, resource=nodes, subresource(s)=[pods proxy])"},
		{"https://%s:10250/metrics", "wrong", 401, "Unauthorized"},
		{"https://%s:10250/exec/default/none/c?command=x&output=1", token, 404, `pod "default/none" does not exist`},
		{"http://%s:10255/pods", "", 200, `"phase":"Running"`},
		{"http://%s:10255/configz", "", 404, ""},
		{"http://%s:10248/readyz", "", 200, "ok"},
		{"http://%s:10248/metrics", "", 404, ""},
	} {
		url := fmt.Sprintf(row.url, addr)
		d.Eventually(url, func() error {
			code, body, err := over(d, url, row.token)
			if err != nil || code != row.code || !strings.Contains(body, row.want) {
				return fmt.Errorf("%d %.200s %w, want %d %s", code, body, err, row.code, row.want)
			}
			return nil
		})
	}
}

// reviewer is an API server that accepts the token "good", whose user may get stats and proxy. It has no other function.
func reviewer(t *testing.T) (kubeconfig string) {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/apis/authentication.k8s.io/v1/tokenreviews":
			var review authenticationv1.TokenReview
			_ = json.NewDecoder(r.Body).Decode(&review)
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: review.Spec.Token == "good", User: authenticationv1.UserInfo{Username: "ada", Extra: map[string]authenticationv1.ExtraValue{"pod": {"p"}}}}
			_ = json.NewEncoder(w).Encode(review)
		case "/apis/authorization.k8s.io/v1/subjectaccessreviews":
			var review authorizationv1.SubjectAccessReview
			_ = json.NewDecoder(r.Body).Decode(&review)
			a, by := review.Spec.ResourceAttributes, &review.Spec
			review.Status.Allowed = by.User == "ada" && slices.Contains(by.Groups, "system:authenticated") && len(by.Extra["pod"]) == 1 &&
				a.Verb == "get" && a.Name == "test-node" && (a.Subresource == "stats" || a.Subresource == "proxy")
			_ = json.NewEncoder(w).Encode(review)
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(s.Close)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	testfiles.Write(t, kubeconfig, fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: '%s', certificate-authority-data: %s}}]\nusers: [{name: u, user: {token: us}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n", s.URL, ca))
	return kubeconfig
}

func TestTheAPIServerSaysWhoMayAskAndCallsPodsByOtherNames(t *testing.T) {
	t.Parallel()
	addr := loopback.Address()
	d := newDaemon(t, "address: "+addr, "port: 10250", "kubeconfig: "+reviewer(t), "authentication: {webhook: {enabled: true}}", "authorization: {mode: Webhook}")
	d.Put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.Start()
	d.Shows("Running", "get", "pods")
	for _, row := range []struct {
		url, token string
		code       int
		want       string
	}{
		{"/stats/summary", "good", 200, `"nodeName":"test-node"`},
		{"/pods", "good", 200, `"name":"web-test-node"`},
		{"/metrics", "good", 403, "Forbidden (user=ada, verb=get, resource=nodes, subresource(s)=[metrics])"},
		{"/exec/default/web-test-node/c?command=x&output=1", "good", 403, "Forbidden (user=ada, verb=create, resource=nodes, subresource(s)=[proxy])"},
		{"/containerLogs/default/web-test-node/other", "good", 404, `container "other" not found in pod "web"`},
		{"/containerLogs/default/web/other", "good", 404, `container "other" not found in pod "web"`},
		{"/containerLogs/default/none-test-node/other", "good", 404, `pod "none-test-node" does not exist`},
		{"/stats/summary", "bad", 401, "Unauthorized"},
		{"/stats/summary", "", 401, "Unauthorized"},
	} {
		d.Eventually(row.url, func() error {
			code, body, err := over(d, "https://"+addr+":10250"+row.url, row.token)
			if err != nil || code != row.code || !strings.Contains(body, row.want) {
				return fmt.Errorf("%d %.200s %w, want %d %s", code, body, err, row.code, row.want)
			}
			return nil
		})
	}
	answers(d, "/pods", 200, `"name":"web"`) // the socket has our own names
}

func TestTheSocketAnswersAsAKubeletDoes(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "enableProfilingHandler: true", "staticPodURLHeader: {Authorization: [hunter2]}", "staticPodURL: http://127.0.0.1:1/x")
	d.Put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.Start()
	d.Shows("Running", "get", "pods")
	_, body := ask(d, "/pods")
	var list corev1.PodList
	if err := json.Unmarshal([]byte(body), &list); err != nil || len(list.Items) != 1 || list.Items[0].Status.Phase != corev1.PodRunning || list.Kind != "PodList" {
		t.Errorf("%v %s", err, body)
	}
	_, body = ask(d, "/configz")
	var conf struct {
		Config struct {
			NodeName       string
			Authentication struct {
				X509 struct{ ClientCAFile *string }
			}
		} `json:"kubeletconfig"`
	}
	if err := json.Unmarshal([]byte(body), &conf); err != nil || conf.Config.NodeName != "test-node" || conf.Config.Authentication.X509.ClientCAFile == nil || strings.Contains(body, "hunter2") {
		t.Errorf("%v %s", err, body)
	}
	answers(d, "/metrics", 200, `kubelet_started_containers_total{container_type="container"} 1`)
	answers(d, "/metrics", 200, "\nkubelet_pod_start_duration_seconds_count 1\n")
	answers(d, "/metrics", 200, `kubelet_runtime_operations_total{operation_type="run_podsandbox"} 1`)
	answers(d, "/metrics", 200, `monopod_events_total{reason="Started",type="Normal"} 1`)
	answers(d, "/metrics", 200, `monopod_inputs{source="file",state="Accepted"} `)
	answers(d, "/metrics/cadvisor", 200, "machine_cpu_cores ")
	answers(d, "/metrics/resource", 200, "resource_scrape_error 0")
	answers(d, "/metrics/probes", 200, "")
	answers(d, "/stats/summary", 200, `"nodeName":"test-node"`)
	answers(d, "/debug/pprof/cmdline", 200, "")
	answers(d, "/runningpods/", 200, `"items":[]`) // the fake tells of no containers
}
