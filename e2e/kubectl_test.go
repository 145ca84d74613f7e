//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod/node/apiserver/apitest"
)

// kubectl is a user of an API server.
type kubectl struct {
	t          *testing.T
	program    string
	kubeconfig string
	env        []string
	// ran gets the commands that step runs.
	ran  *commandsRun
	step string
}

// as returns a user of the API server.
func as(t *testing.T, s *apitest.Server, who apitest.Request) *kubectl {
	t.Helper()
	return &kubectl{t: t, program: s.Program("kubectl"), kubeconfig: s.Kubeconfig(s.Address, who), env: []string{"HOME=" + t.TempDir()}}
}

func (k *kubectl) command(args ...string) *exec.Cmd {
	c := exec.CommandContext(k.t.Context(), k.program, append([]string{"--kubeconfig=" + k.kubeconfig}, args...)...)
	c.Env = append(os.Environ(), k.env...)
	k.ran.add(k.step, args)
	return c
}

// try runs a command with standard input, and returns what it prints and its exit code.
func (k *kubectl) try(in string, args ...string) (out, errs string, code int) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, k.program, append([]string{"--kubeconfig=" + k.kubeconfig}, args...)...)
	var o, e bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr, c.Env = strings.NewReader(in), &o, &e, append(os.Environ(), k.env...)
	var exit *exec.ExitError
	if err := c.Run(); err != nil && !errors.As(err, &exit) {
		k.t.Fatalf("%s %v: %v", filepath.Base(k.program), args, err)
	}
	if c.ProcessState.ExitCode() == 0 {
		k.ran.add(k.step, args)
	}
	return o.String(), e.String(), c.ProcessState.ExitCode()
}

// prints runs a command that must succeed.
func (k *kubectl) prints(args ...string) string {
	k.t.Helper()
	out, errs, code := k.try("", args...)
	if code != 0 {
		k.t.Fatalf("%s %v: exit code %d\n%s", filepath.Base(k.program), args, code, errs)
	}
	return out
}

// runs starts a command, which ends with the test.
func (k *kubectl) runs(c *exec.Cmd) {
	k.t.Helper()
	if err := c.Start(); err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
}

// follows starts a command and returns its output line by line, and what ends it.
func (k *kubectl) follows(args ...string) (lines *bufio.Scanner, end func()) {
	k.t.Helper()
	c := k.command(args...)
	out, err := c.StdoutPipe()
	if err != nil {
		k.t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		k.t.Fatal(err)
	}
	return bufio.NewScanner(out), func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
}

// TestKubectlReachesThePods: requests of kubectl reach our port through a real API server.
func TestKubectlReachesThePods(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t, apitest.Options{VerifyNodes: true})
	port := freePort(t)
	in := newInstance(t, "kubeconfig: "+s.Kubeconfig(s.Address, apitest.Node("e2e")), fmt.Sprintf("port: %d", port), "serverTLSBootstrap: true", "apiServerPods: true",
		"authentication: {x509: {clientCAFile: "+s.Dir+"/ca.crt}, webhook: {enabled: true}}", "authorization: {mode: Webhook}")
	in.put("web", sleeper("web", "echo first; echo second; mkdir -p /tmp/w; echo served >/tmp/w/index.html; httpd -p 8080 -h /tmp/w"))
	in.start()
	in.ready("web")
	admin := as(t, s, apitest.Request{Name: "admin", Groups: []string{"system:masters"}})

	s.Eventually("the node is not believed before its certificate is signed", func() error {
		_, errs, code := admin.try("", "logs", "web-e2e")
		if code == 0 || !strings.Contains(errs, "certificate signed by unknown authority") {
			return fmt.Errorf("exit code %d: %s", code, errs)
		}
		return nil
	})
	s.Eventually("it asks for one", func() error {
		if s.Approve(certificatesv1.KubeletServingSignerName, 0) == 0 {
			return errors.New("there is no request")
		}
		return nil
	})
	s.Eventually("it is believed", func() error {
		if out, errs, code := admin.try("", "logs", "web-e2e"); code != 0 || out != "first\nsecond\n" {
			return fmt.Errorf("exit code %d: %s %s", code, out, errs)
		}
		return nil
	})
	s.Bind("e2e", "bound", func(p *corev1.Pod) { p.Spec.Containers[0].Image = image })
	in.ready("bound")
	for _, websockets := range []string{"true", "false"} {
		how := map[string]string{"true": "WebSocket", "false": "SPDY"}[websockets]
		admin.env = append(admin.env, "KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+websockets, "KUBECTL_PORT_FORWARD_WEBSOCKETS="+websockets)
		t.Run("exec over "+how, func(t *testing.T) { testKubectlExec(t, admin) })
		t.Run("port-forward over "+how, func(t *testing.T) { testKubectlForward(t, admin) })
	}
	t.Run("logs", func(t *testing.T) { testKubectlLogs(t, admin) })
	t.Run("figures", func(t *testing.T) {
		for path, want := range map[string]string{
			"stats/summary":    `"podRef":{"name":"web-e2e","namespace":"default"`,
			"metrics/resource": `pod_memory_working_set_bytes{namespace="default",pod="web-e2e"}`,
			"pods":             `"name":"web-e2e"`, "healthz": "ok", "stats/summary?only_cpu_and_memory=true": `"podRef":{"name":"bound","namespace":"default"`,
		} {
			out := admin.prints("get", "--raw", "/api/v1/nodes/e2e/proxy/"+path)
			if flat := strings.NewReplacer(" ", "", "\n", "").Replace(out); !strings.Contains(flat, want) {
				t.Errorf("%s: no %s in\n%s", path, want, out)
			}
		}
	})
	t.Run("strangers", func(t *testing.T) { testStrangers(t, s, port) })
	s.Must(http.MethodDelete, mirrors+"bound", nil, nil)
	in.gone("bound")
}

func testKubectlExec(t *testing.T, admin *kubectl) {
	out, errs, code := admin.try("from here\n", "exec", "-i", "web-e2e", "--", "sh", "-c", "cat; echo told >&2; exit 3")
	if out != "from here\n" || code != 3 || !strings.HasPrefix(errs, "told\n") {
		t.Errorf("exit code %d\n%s\n%s", code, out, errs)
	}
	if out := admin.prints("exec", "bound", "--", "cat", "/db/pass"); out == "" {
		t.Error("a pod that the API server binds has no Secret")
	}
	if out, errs, code := admin.try("", "exec", "web-e2e", "-c", "none", "--", "true"); code != 1 || !strings.Contains(errs, "none") {
		t.Errorf("another container: exit code %d\n%s\n%s", code, out, errs)
	}
}

func testKubectlForward(t *testing.T, admin *kubectl) {
	lines, end := admin.follows("port-forward", "--address=127.0.0.1", "web-e2e", ":8080")
	defer end()
	if !lines.Scan() {
		t.Fatal("it is not forwarded")
	}
	found := regexp.MustCompile(`^Forwarding from 127\.0\.0\.1:(\d+) -> 8080$`).FindStringSubmatch(lines.Text())
	if found == nil {
		t.Fatal(lines.Text())
	}
	for range 2 {
		res, err := http.Get("http://" + net.JoinHostPort("127.0.0.1", found[1]) + "/")
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || string(b) != "served\n" {
			t.Errorf("%q %v", b, err)
		}
	}
}

func testKubectlLogs(t *testing.T, admin *kubectl) {
	if out := admin.prints("logs", "web-e2e", "--tail=1"); out != "second\n" {
		t.Errorf("the last line is %q", out)
	}
	lines, end := admin.follows("logs", "-f", "web-e2e")
	defer end()
	for _, want := range []string{"first", "second", "third"} {
		if want == "third" {
			admin.prints("exec", "web-e2e", "--", "sh", "-c", "echo third >/proc/1/fd/1")
		}
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("%q, want %q", lines.Text(), want)
		}
	}
}

// testStrangers sends requests to the port directly: with certificates, and with tokens of ServiceAccounts.
func testStrangers(t *testing.T, s *apitest.Server, port int) {
	const rbac = "/apis/rbac.authorization.k8s.io/v1/"
	s.Must(http.MethodPost, rbac+"clusterroles", map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": "figures"},
		"rules": []map[string]any{{"apiGroups": []string{""}, "resources": []string{"nodes/stats", "nodes/metrics"}, "verbs": []string{"get"}}},
	}, nil)
	s.Must(http.MethodPost, rbac+"clusterrolebindings", map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": "figures"},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "figures"},
		"subjects": []map[string]any{{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader"}, {"kind": "ServiceAccount", "namespace": "default", "name": "reader"}},
	}, nil)
	s.Must(http.MethodPost, "/api/v1/namespaces/default/serviceaccounts", map[string]any{"metadata": map[string]any{"name": "reader"}}, nil)
	var token struct{ Status struct{ Token string } }
	s.Must(http.MethodPost, "/api/v1/namespaces/default/serviceaccounts/reader/token", map[string]any{}, &token)
	ask := func(path string, cert *tls.Certificate, token string) (int, string) {
		t.Helper()
		conf := &tls.Config{RootCAs: s.CA.Pool(), ServerName: "e2e"}
		if cert != nil {
			conf.Certificates = []tls.Certificate{*cert}
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d%s", port, path), nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		res, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: conf, DisableKeepAlives: true}}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(b)
	}
	reader, nobody := s.CA.Issue(t, apitest.Request{Name: "reader"}).TLS(t), s.CA.Issue(t, apitest.Request{Name: "nobody"}).TLS(t)
	stranger := apitest.NewAuthority(t).Issue(t, apitest.Request{Name: "admin", Groups: []string{"system:masters"}}).TLS(t)
	for _, row := range []struct {
		who, path string
		cert      *tls.Certificate
		token     string
		code      int
	}{
		{"who may read figures", "/stats/summary", &reader, "", 200},
		{"who may read figures", "/exec/default/web-e2e/c?command=id&output=1", &reader, "", 403},
		{"who may read figures", "/containerLogs/default/web-e2e/c", &reader, "", 403},
		{"a ServiceAccount that may", "/metrics/resource", nil, token.Status.Token, 200},
		{"a ServiceAccount that may", "/pods", nil, token.Status.Token, 403},
		{"nobody", "/stats/summary", &nobody, "", 403},
		{"a token of nobody", "/stats/summary", nil, "made-up", 401},
		{"without a name", "/stats/summary", nil, "", 401},
		{"of another authority", "/stats/summary", &stranger, "", 401},
	} {
		if code, body := ask(row.path, row.cert, row.token); code != row.code {
			t.Errorf("%s: %s: %d, want %d: %.200s", row.who, row.path, code, row.code, body)
		}
	}
	user := as(t, s, apitest.Request{Name: "reader"})
	for _, args := range [][]string{{"logs", "web-e2e"}, {"exec", "web-e2e", "--", "true"}} {
		if _, errs, code := user.try("", args...); code != 1 || !strings.Contains(errs, "Forbidden") && !strings.Contains(errs, "forbidden") {
			t.Errorf("kubectl %v: exit code %d\n%s", args, code, errs)
		}
	}
}

// freePort returns an unused TCP port.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
